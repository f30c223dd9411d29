"""From a GraphDef to a Graph: shapes by TensorFlow's own inference, functions and branches written out in place.

The rules where the graph leaves something open:
- a side of a shape that the data decides on gets a number from its bound (sides.py), or what the caller says;
- of two branches, the one that makes more memory is taken (branches.py);
- loops stay one node, with their condition and body beside it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.trace.tensorflow.buffers.lists import Shape
from oomproof.trace.tensorflow.graph.capture import Captured
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref
from oomproof.trace.tensorflow.graph.importing import importable
from oomproof.trace.tensorflow.graph.operations import GraphOperation, Result, list_operations, look_at
from oomproof.trace.tensorflow.sizes.sides import ARGUMENTS, Handed, Sides

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient", "RemoteCall"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
LOOPS = frozenset({"While", "StatelessWhile"})
CHOSEN = "_Chosen"
"""stands for what a branch is handed; the same memory as before"""


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
        plain, returned = importable(definition, captured.definition)
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(plain, name="")
        self._arguments = (*captured.inputs, *captured.constants)
        results = [self.graph.get_tensor_by_name(returned[name]) for name in captured.results]
        targets = [self.graph.get_operation_by_name(name) for name in (*captured.targets, *self._arguments)]
        self._whole = _Part.of(self.graph, results, targets)
        self._parts: dict[str, _Part] = {}

    def read(self, share: float = 1.0) -> Graph:
        """The part of the graph that results and targets need, with all arguments. What the data decides on is as long
        as ``share`` of its bound."""
        page = _Page(self, share)
        refs, effects = page.write(self._whole, given={}, prefix="", after=())
        numbers = {node.name: number for number, node in enumerate(page.nodes)}
        self.guessed = page.sides.open
        self.without_bound = tuple(dict.fromkeys(page.sides.without_bound))
        return Graph(tuple(page.nodes), tuple(refs), tuple(effects), tuple(numbers[name] for name in self._arguments))

    def body(self, name: str, handed: Sequence[Handed], share: float) -> tuple[Graph, Sides]:
        """A function as a graph of its own, for loops, for what it is handed."""
        part = self.part(name)
        page = _Page(self, share)
        page.sides.given.update(zip((argument.name for argument in part.arguments), handed, strict=True))
        refs, effects = page.write(part, given={}, prefix="", after=())
        numbers = {node.name: number for number, node in enumerate(page.nodes)}
        arguments = []
        for argument in part.arguments:  # one that nothing reads has no node yet
            if argument.name not in numbers:
                numbers[argument.name] = len(page.nodes)
                page.nodes.append(Node(argument.name, "_Arg", (), (), page.outputs(argument, ())))
            arguments.append(numbers[argument.name])
        return Graph(tuple(page.nodes), tuple(refs), tuple(effects), tuple(arguments)), page.sides

    def find_handed_on(self, name: str) -> set[int]:
        """Which arguments of a loop's body come out of it as they went in."""
        part = self.part(name)
        found = set()
        for place, (argument, result) in enumerate(zip(part.arguments, part.tensors, strict=True)):
            source = result.op
            while source.type == "Identity":
                source = source.inputs[0].op
            if source.name == argument.name:
                found.add(place)
        return found

    def part(self, name: str) -> _Part:
        """A function of the graph's library."""
        from oomproof.frameworks.tensorflow import function_def_to_graph

        if name not in self._parts:
            with self.graph.as_default():
                function = function_def_to_graph(self.functions[name], include_library_functions=True)
            self._parts[name] = _Part.of(function, function.outputs, function.control_outputs, function.inputs)
        return self._parts[name]


@dataclass(frozen=True)
class _Part:
    """A graph or a function: what is needed of it."""

    operations: Sequence[GraphOperation]
    arguments: Sequence[GraphOperation]
    tensors: Sequence[Any]
    """its results, as TensorFlow has them"""
    results: Sequence[str]
    targets: Sequence[str]

    @classmethod
    def of(cls, graph: Any, results: Sequence[Any], targets: Sequence[Any], arguments: Sequence[Any] = ()) -> _Part:
        return cls(
            list_operations(graph, [*(tensor.op for tensor in results), *targets]),
            [look_at(tensor.op) for tensor in arguments],
            list(results),
            [tensor.name for tensor in results],
            [operation.name for operation in targets],
        )


class _Page:
    """Nodes written one after the other; calls are opened as they come."""

    def __init__(self, reader: GraphReader, share: float) -> None:
        self.reader = reader
        self.sides = Sides(reader.tf, share, reader.unknown)
        self.nodes: list[Node] = []

    def outputs(self, operation: GraphOperation, inputs: Sequence[Ref]) -> tuple[Output, ...]:
        """What the operation makes, which is the next node."""
        return _size_outputs(operation.results, self.sides.of(operation, inputs, len(self.nodes)))

    def hand_over(self, refs: Sequence[Ref], stay: Collection[int]) -> list[Handed]:
        if self.reader.unknown is not None:
            return [Handed(self.nodes[ref[0]].outputs[ref[1]].shape) for ref in refs]
        return [self.sides.hand_over(ref, place in stay) for place, ref in enumerate(refs)]

    def write(
        self,
        part: _Part,
        *,
        given: Mapping[str, Ref],
        prefix: str,
        after: tuple[int, ...],
    ) -> tuple[list[Ref], list[int]]:
        """Writes the operations of ``part``. ``given`` are the tensors that a caller hands in; nodes that
        read nothing wait for ``after``. Returns where the results are, and the nodes that run for their effect."""
        refs: dict[str, Ref] = dict(given)
        ran: dict[str, tuple[int, ...]] = {}
        for operation in part.operations:
            name, kind = operation.name, operation.type
            if kind in ARGUMENTS and f"{name}:0" in given:
                ran[name] = ()
                continue
            inputs = tuple(refs[each] for each in operation.inputs)
            controls = tuple(dict.fromkeys(number for each in operation.controls for number in ran[each]))
            if not inputs and not controls:
                controls = after
            if kind in CALLS or kind in BRANCHES:
                outs, done = self._write_out(operation, inputs, controls, f"{prefix}{name}/")
            else:
                number = self._append(operation, inputs, controls, prefix + name)
                outs, done = [(number, index) for index in range(len(operation.results))], (number,)
            ran[name] = done
            refs.update((result.name, ref) for result, ref in zip(operation.results, outs, strict=True))
        return [refs[each] for each in part.results], [number for each in part.targets for number in ran[each]]

    def _append(self, operation: GraphOperation, inputs: tuple[Ref, ...], controls: tuple[int, ...], name: str) -> int:
        bodies: tuple[Graph, ...] = ()
        if operation.type in LOOPS:
            outputs, bodies = self._loop(operation, inputs)
        else:
            outputs = self.outputs(operation, inputs)
        self.nodes.append(Node(name, operation.type, inputs, controls, outputs, operation.attrs, bodies))
        return len(self.nodes) - 1

    def _loop(self, operation: GraphOperation, inputs: tuple[Ref, ...]) -> tuple[tuple[Output, ...], tuple[Graph, ...]]:
        entered = self.hand_over(inputs, self.reader.find_handed_on(operation.original.get_attr("body").name))
        bodies = []
        for attr in ("cond", "body"):
            body, sides = self.reader.body(operation.original.get_attr(attr).name, entered, self.sides.share)
            self.sides.add(sides)
            bodies.append(body)
        given_back = [
            Handed(body.output(ref).shape, sides.lists.get(ref), by_data=sides.is_by_data(ref)) for ref in body.results
        ]
        shapes = self.sides.loop(operation, inputs, len(self.nodes), entered, given_back)
        return _size_outputs(operation.results, shapes), tuple(bodies)

    def _write_out(
        self, operation: GraphOperation, inputs: tuple[Ref, ...], controls: tuple[int, ...], prefix: str
    ) -> tuple[list[Ref], tuple[int, ...]]:
        """A call written out; of branches the heaviest, with its inputs passing a switch as they do at run time."""
        if operation.type in CALLS:
            return self._call(operation.original.get_attr("f").name, inputs, controls, prefix)
        if operation.type.endswith("If"):
            names = [operation.original.get_attr(attr).name for attr in ("then_branch", "else_branch")]
        else:
            names = [branch.name for branch in operation.original.get_attr("branches")]
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
        part = self.reader.part(name)
        given = {argument.results[0].name: ref for argument, ref in zip(part.arguments, inputs, strict=True)}
        refs, effects = self.write(part, given=given, prefix=prefix, after=controls)
        return refs, tuple(dict.fromkeys([*(ref[0] for ref in refs), *effects, *controls]))


def _size_outputs(results: Sequence[Result], shapes: Sequence[Shape]) -> tuple[Output, ...]:
    return tuple(
        Output(tuple(shape), result.dtype, math.prod(shape) * result.item)
        if result.has_memory
        else Output((), result.dtype, 0)
        for shape, result in zip(shapes, results, strict=True)
    )


def _count_bytes(graph: Graph) -> int:
    return sum(output.bytes for node in graph.nodes for output in node.outputs)
