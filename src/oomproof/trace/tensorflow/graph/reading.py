"""From a GraphDef to a Graph: shapes by TensorFlow's own inference, functions and branches written out in place.

The rules where the graph leaves something open:
- a side of a shape that the data decides on gets a number from its bound (sides.py), or what the caller says;
- of two branches, the one that makes more memory is taken (branches.py);
- loops stay one node, with their condition and body beside it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from oomproof.trace.tensorflow.buffers.lists import Shape
from oomproof.trace.tensorflow.graph.capture import Captured
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref
from oomproof.trace.tensorflow.graph.importing import importable
from oomproof.trace.tensorflow.sizes.sides import ARGUMENTS, NO_MEMORY, Handed, Sides

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient", "RemoteCall"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
LOOPS = frozenset({"While", "StatelessWhile"})
CHOSEN = "_Chosen"
"""stands for what a branch is handed; the same memory as before"""
SMALL_CONSTANT = 64
"""elements up to which a constant's value is kept: axes, permutations, sizes"""
_KEPT = ("strides", "dilations", "data_format", "padding", "T", "var_name", "axis", "keep_dims", "equation")


class GraphReader:
    """Reads one GraphDef. After ``read``: ``guessed`` tensors have a side that is not known before the step runs, and
    those of the operations ``without_bound`` may be larger than was counted. An unknown side counts as ``unknown``,
    where that is a number."""

    def __init__(self, definition: Any, captured: Captured, unknown: int | None = None) -> None:
        import tensorflow as tf

        self.tf = tf
        self.unknown = unknown
        self.guessed = 0
        self.without_bound: tuple[str, ...] = ()
        self.functions = {function.signature.name: function for function in definition.library.function}
        plain, self.returned = importable(definition, captured.definition)
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(plain, name="")

    def read(
        self, results: Sequence[str], targets: Sequence[str], arguments: Sequence[str] = (), share: float = 1.0
    ) -> Graph:
        """The part of the graph that ``results`` (nodes that return a tensor) and ``targets`` need, with all
        ``arguments``. What the data decides on is as long as ``share`` of its bound."""
        page = _Page(self, share)
        tensors = [self.graph.get_tensor_by_name(self.returned[name]) for name in results]
        nodes = [self.graph.get_operation_by_name(name) for name in (*targets, *arguments)]
        refs, effects = page.write(self.graph, tensors, nodes, given={}, prefix="", after=())
        numbers = {node.name: number for number, node in enumerate(page.nodes)}
        self.guessed = page.sides.open
        self.without_bound = tuple(dict.fromkeys(page.sides.without_bound))
        return Graph(tuple(page.nodes), tuple(refs), tuple(effects), tuple(numbers[name] for name in arguments))

    def body(self, name: str, handed: Sequence[Handed], share: float) -> tuple[Graph, Sides]:
        """A function as a graph of its own, for loops, for what it is handed."""
        function = self._function(name)
        page = _Page(self, share)
        page.sides.given.update(zip((tensor.op.name for tensor in function.inputs), handed, strict=True))
        refs, effects = page.write(
            function, list(function.outputs), list(function.control_outputs), given={}, prefix="", after=()
        )
        numbers = {node.name: number for number, node in enumerate(page.nodes)}
        arguments = []
        for tensor in function.inputs:  # an argument that nothing reads has no node yet
            if tensor.op.name not in numbers:
                numbers[tensor.op.name] = len(page.nodes)
                page.nodes.append(Node(tensor.op.name, "_Arg", (), (), page.outputs(tensor.op, ())))
            arguments.append(numbers[tensor.op.name])
        return Graph(tuple(page.nodes), tuple(refs), tuple(effects), tuple(arguments)), page.sides

    def find_handed_on(self, name: str) -> set[int]:
        """Which arguments of a loop's body come out of it as they went in."""
        function = self._function(name)
        found = set()
        for place, (given, result) in enumerate(zip(function.inputs, function.outputs, strict=True)):
            back = result
            while back.op.type == "Identity":
                back = back.op.inputs[0]
            if back is given:
                found.add(place)
        return found

    def _function(self, name: str) -> Any:
        from oomproof.frameworks.tensorflow import function_def_to_graph

        # Each call is read on its own: shapes follow from the function's own attributes.
        with self.graph.as_default():
            return function_def_to_graph(self.functions[name], include_library_functions=True)


class _Page:
    """Nodes written one after the other; calls are opened as they come."""

    def __init__(self, reader: GraphReader, share: float) -> None:
        self.reader = reader
        self.sides = Sides(reader.tf, share, reader.unknown)
        self.nodes: list[Node] = []

    def outputs(self, operation: Any, inputs: Sequence[Ref]) -> tuple[Output, ...]:
        """What the operation makes, which is the next node."""
        return _size_outputs(operation, self.sides.of(operation, inputs, len(self.nodes)))

    def hand_over(self, refs: Sequence[Ref], stay: Collection[int]) -> list[Handed]:
        if self.reader.unknown is not None:
            return [Handed(self.nodes[ref[0]].outputs[ref[1]].shape) for ref in refs]
        return [self.sides.hand_over(ref, place in stay) for place, ref in enumerate(refs)]

    def write(
        self,
        graph: Any,
        results: Sequence[Any],
        targets: Sequence[Any],
        *,
        given: Mapping[str, Ref],
        prefix: str,
        after: tuple[int, ...],
    ) -> tuple[list[Ref], list[int]]:
        """Writes what ``results`` and ``targets`` need. ``given`` are the tensors that a caller hands in; nodes that
        read nothing wait for ``after``. Returns where the results are, and the nodes that run for their effect."""
        refs: dict[str, Ref] = dict(given)
        ran: dict[str, tuple[int, ...]] = {}
        for operation in _find_needed(graph, [*(tensor.op for tensor in results), *targets]):
            name, kind = operation.name, operation.type
            if kind in ARGUMENTS and f"{name}:0" in given:
                ran[name] = ()
                continue
            inputs = tuple(refs[tensor.name] for tensor in operation.inputs)
            controls = tuple(dict.fromkeys(number for each in operation.control_inputs for number in ran[each.name]))
            if not inputs and not controls:
                controls = after
            if kind in CALLS or kind in BRANCHES:
                outs, done = self._write_out(operation, inputs, controls, f"{prefix}{name}/")
            else:
                number = self._append(operation, inputs, controls, prefix + name)
                outs, done = [(number, index) for index in range(len(operation.outputs))], (number,)
            ran[name] = done
            refs.update((tensor.name, ref) for tensor, ref in zip(operation.outputs, outs, strict=True))
        return [refs[tensor.name] for tensor in results], [number for each in targets for number in ran[each.name]]

    def _append(self, operation: Any, inputs: tuple[Ref, ...], controls: tuple[int, ...], name: str) -> int:
        bodies: tuple[Graph, ...] = ()
        if operation.type in LOOPS:
            outputs, bodies = self._loop(operation, inputs)
        else:
            outputs = self.outputs(operation, inputs)
        self.nodes.append(Node(name, operation.type, inputs, controls, outputs, _attrs(operation), bodies))
        return len(self.nodes) - 1

    def _loop(self, operation: Any, inputs: tuple[Ref, ...]) -> tuple[tuple[Output, ...], tuple[Graph, ...]]:
        entered = self.hand_over(inputs, self.reader.find_handed_on(operation.get_attr("body").name))
        bodies = []
        for attr in ("cond", "body"):
            body, sides = self.reader.body(operation.get_attr(attr).name, entered, self.sides.share)
            self.sides.add(sides)
            bodies.append(body)
        given_back = [Handed(body.output(ref).shape, sides.lists.get(ref)) for ref in body.results]
        shapes = self.sides.loop(operation, inputs, len(self.nodes), entered, given_back)
        return _size_outputs(operation, shapes), tuple(bodies)

    def _write_out(
        self, operation: Any, inputs: tuple[Ref, ...], controls: tuple[int, ...], prefix: str
    ) -> tuple[list[Ref], tuple[int, ...]]:
        """A call written out; of branches the heaviest, with its inputs passing a switch as they do at run time."""
        if operation.type in CALLS:
            return self._call(operation.get_attr("f").name, inputs, controls, prefix)
        if operation.type.endswith("If"):
            names = [operation.get_attr(attr).name for attr in ("then_branch", "else_branch")]
        else:
            names = [branch.name for branch in operation.get_attr("branches")]
        # Each is written to a page of its own to see how much it makes.
        choice, *rest = inputs
        handed = self.hand_over(rest, range(len(rest)))
        chosen = max(names, key=lambda name: _count_bytes(self.reader.body(name, handed, self.sides.share)[0]))
        switched = []
        for place, ref in enumerate(rest):
            source = self.nodes[ref[0]].outputs[ref[1]]
            self.nodes.append(Node(f"{prefix}switch_{place}", CHOSEN, (ref, choice), controls, (source,)))
            switched.append((len(self.nodes) - 1, 0))
            self.sides.same(switched[-1], ref)
        self.nodes.append(Node(f"{prefix}pivot", "NoOp", (choice,), controls))
        pivot = len(self.nodes) - 1
        outs, done = self._call(chosen, tuple(switched), (pivot,), prefix)
        return outs, (*done, pivot)

    def _call(
        self, name: str, inputs: tuple[Ref, ...], controls: tuple[int, ...], prefix: str
    ) -> tuple[list[Ref], tuple[int, ...]]:
        function = self.reader._function(name)
        given = {tensor.name: ref for tensor, ref in zip(function.inputs, inputs, strict=True)}
        refs, effects = self.write(
            function, list(function.outputs), list(function.control_outputs), given=given, prefix=prefix, after=controls
        )
        return refs, tuple(dict.fromkeys([*(ref[0] for ref in refs), *effects, *controls]))


def _size_outputs(operation: Any, shapes: Sequence[Shape]) -> tuple[Output, ...]:
    types = [tensor.dtype.base_dtype for tensor in operation.outputs]
    return tuple(
        Output((), dtype.name, 0)
        if dtype.name in NO_MEMORY
        else Output(tuple(shape), dtype.name, math.prod(shape) * dtype.size)
        for shape, dtype in zip(shapes, types, strict=True)
    )


def _count_bytes(graph: Graph) -> int:
    return sum(output.bytes for node in graph.nodes for output in node.outputs)


def _find_needed(graph: Any, wanted: Sequence[Any]) -> list[Any]:
    """Operations that ``wanted`` depend on, each after those it depends on."""
    order: list[Any] = []
    state: dict[str, bool] = {}
    stack = [(operation, False) for operation in reversed(wanted)]
    while stack:
        operation, entered = stack.pop()
        name = operation.name
        if entered:
            order.append(operation)
        elif name not in state:
            state[name] = True
            stack.append((operation, True))
            stack.extend((tensor.op, False) for tensor in operation.inputs)
            stack.extend((before, False) for before in operation.control_inputs)
    # As the graph lists them, where that is an order: it decides which of two ready nodes is seen first.
    position = {operation.name: place for place, operation in enumerate(graph.get_operations())}
    return sorted(order, key=lambda operation: position[operation.name])


def _attrs(operation: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    definition = operation.node_def.attr
    for name in _KEPT:
        if name not in definition:
            continue
        value = definition[name]
        which = value.WhichOneof("value")
        attrs[name] = list(value.list.i) if which == "list" else getattr(value, which)
    if operation.type == "Const":
        shape = definition["value"].tensor.tensor_shape
        if math.prod(side.size for side in shape.dim) <= SMALL_CONSTANT:
            from oomproof.frameworks.tensorflow import array_of

            attrs["value"] = array_of(definition["value"].tensor).ravel().tolist()
    return attrs
