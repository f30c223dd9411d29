"""From a GraphDef to a Graph: shapes by TensorFlow's own inference, functions and branches written out in place.

The rules where the graph leaves something open:
- an unknown side of a shape counts as 1, or as what the caller says;
- of two branches, the one that makes more memory is taken (branches.py);
- loops stay one node, with their condition and body beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from oomproof.trace.tensorflow import capture
from oomproof.trace.tensorflow.capture import Captured
from oomproof.trace.tensorflow.graph import Graph, Node, Output, Ref

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient", "RemoteCall"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
LOOPS = frozenset({"While", "StatelessWhile"})
ARGUMENTS = frozenset({"Placeholder", "_Arg"})
NO_MEMORY = frozenset({"resource", "variant", "string"})
CHOSEN = "_Chosen"
"""stands for what a branch is handed; the same memory as before"""
SMALL_CONSTANT = 64
"""elements up to which a constant's value is kept: axes, permutations, sizes"""
_KEPT = ("strides", "dilations", "data_format", "padding", "T", "var_name", "axis", "keep_dims", "equation")


class Reader:
    """Reads one GraphDef; ``unread`` says how many tensors have an unknown side."""

    def __init__(self, definition: Any, captured: Captured, unknown: int = 1) -> None:
        import tensorflow as tf

        self.tf = tf
        self.unknown = unknown
        self.guessed = 0
        self.functions = {function.signature.name: function for function in definition.library.function}
        plain, self.returned = _importable(definition, captured.definition)
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(plain, name="")

    def read(self, results: Sequence[str], targets: Sequence[str], arguments: Sequence[str] = ()) -> Graph:
        """The part of the graph that ``results`` (nodes that return a tensor) and ``targets`` need, with all
        ``arguments``."""
        page = _Page(self)
        tensors = [self.graph.get_tensor_by_name(self.returned[name]) for name in results]
        nodes = [self.graph.get_operation_by_name(name) for name in (*targets, *arguments)]
        refs, effects = page.write(self.graph, tensors, nodes, given={}, prefix="", after=())
        numbers = {node.name: number for number, node in enumerate(page.nodes)}
        return Graph(tuple(page.nodes), tuple(refs), tuple(effects), tuple(numbers[name] for name in arguments))

    def body(self, name: str) -> Graph:
        """A function as a graph of its own, for loops."""
        function = self._function(name)
        page = _Page(self)
        refs, effects = page.write(
            function, list(function.outputs), list(function.control_outputs), given={}, prefix="", after=()
        )
        numbers = {node.name: number for number, node in enumerate(page.nodes)}
        arguments = []
        for tensor in function.inputs:  # an argument that nothing reads has no node yet
            if tensor.op.name not in numbers:
                numbers[tensor.op.name] = len(page.nodes)
                page.nodes.append(Node(tensor.op.name, "_Arg", (), (), (self.output(tensor),)))
            arguments.append(numbers[tensor.op.name])
        return Graph(tuple(page.nodes), tuple(refs), tuple(effects), tuple(arguments))

    def _function(self, name: str) -> Any:
        from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

        # Each call is read on its own: shapes follow from the function's own attributes.
        with self.graph.as_default():
            return function_def_to_graph(self.functions[name], include_library_functions=True)

    def output(self, tensor: Any) -> Output:
        dtype = tensor.dtype.base_dtype
        if dtype.name in NO_MEMORY:
            return Output((), dtype.name, 0)
        sides = tensor.shape.as_list() if tensor.shape.rank is not None else [None]
        if None in sides:
            self.guessed += 1
        shape = tuple(self.unknown if side is None else side for side in sides)
        return Output(shape, dtype.name, math.prod(shape) * dtype.size)


class _Page:
    """Nodes written one after the other; calls are opened as they come."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.nodes: list[Node] = []

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
        for operation in _needed(graph, [*(tensor.op for tensor in results), *targets]):
            name, kind = operation.name, operation.type
            if kind in ARGUMENTS and f"{name}:0" in given:
                ran[name] = ()
                continue
            inputs = tuple(refs[tensor.name] for tensor in operation.inputs)
            controls = tuple(dict.fromkeys(number for each in operation.control_inputs for number in ran[each.name]))
            if not inputs and not controls:
                controls = after
            if kind in CALLS or kind in BRANCHES:
                outs, done = self._opened(operation, inputs, controls, f"{prefix}{name}/")
            else:
                number = self._append(operation, inputs, controls, prefix + name)
                outs, done = [(number, index) for index in range(len(operation.outputs))], (number,)
            ran[name] = done
            refs.update((tensor.name, ref) for tensor, ref in zip(operation.outputs, outs, strict=True))
        return [refs[tensor.name] for tensor in results], [number for each in targets for number in ran[each.name]]

    def _append(self, operation: Any, inputs: tuple[Ref, ...], controls: tuple[int, ...], name: str) -> int:
        reader = self.reader
        bodies: tuple[Graph, ...] = ()
        if operation.type in LOOPS:
            bodies = tuple(reader.body(operation.get_attr(attr).name) for attr in ("cond", "body"))
        outputs = tuple(reader.output(tensor) for tensor in operation.outputs)
        self.nodes.append(Node(name, operation.type, inputs, controls, outputs, _attrs(operation), bodies))
        return len(self.nodes) - 1

    def _opened(
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
        chosen = max(names, key=lambda name: _made(self.reader.body(name)))
        choice, *rest = inputs
        switched = []
        for place, ref in enumerate(rest):
            source = self.nodes[ref[0]].outputs[ref[1]]
            self.nodes.append(Node(f"{prefix}switch_{place}", CHOSEN, (ref, choice), controls, (source,)))
            switched.append((len(self.nodes) - 1, 0))
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


def _importable(definition: Any, before: Any) -> tuple[Any, dict[str, str]]:
    """The GraphDef with arguments as handles and placeholders, which can be imported with their shapes; and which
    tensor (NODE:NUMBER) each of the returning nodes returns. ``before`` knows the shapes, which grappler drops."""
    arguments = {node.name: node for node in before.node if node.op in capture.ARGUMENTS}
    plain = type(definition)()
    plain.versions.CopyFrom(definition.versions)
    plain.library.CopyFrom(definition.library)
    returned: dict[str, str] = {}
    for node in definition.node:
        if node.op == "_Retval":
            name, _, number = node.input[0].partition(":")
            returned[node.name] = f"{name}:{number or 0}"
            continue
        copy = plain.node.add()
        copy.CopyFrom(node)
        known = arguments.get(node.name)
        if known is None:
            continue
        copy.ClearField("attr")
        if "_handle_dtypes" in known.attr:
            copy.op = "VarHandleOp"
            copy.attr["dtype"].type = known.attr["_handle_dtypes"].list.type[0]
            copy.attr["shape"].shape.CopyFrom(known.attr["_handle_shapes"].list.shape[0])
            copy.attr["shared_name"].s = node.name.encode()
        else:
            copy.op = "Placeholder"
            copy.attr["dtype"].type = (known.attr["dtype"] if known.op == capture.SHAPED else known.attr["T"]).type
            if known.op == capture.SHAPED:
                copy.attr["shape"].shape.CopyFrom(known.attr["shape"].shape)
            else:
                copy.attr["shape"].shape.unknown_rank = True
    return plain, returned


def _made(graph: Graph) -> int:
    return sum(output.bytes for node in graph.nodes for output in node.outputs)


def _needed(graph: Any, wanted: Sequence[Any]) -> list[Any]:
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
            from tensorflow.python.framework.tensor_util import MakeNdarray

            attrs["value"] = MakeNdarray(definition["value"].tensor).ravel().tolist()
    return attrs
