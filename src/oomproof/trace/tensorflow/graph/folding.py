"""What follows from constants alone is computed once, before the first step, and is a constant itself.

TensorFlow's runtime does so with a function's graph, after its graph optimizer did most of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oomproof.trace.tensorflow.graph.branches import MERGES, SWITCHES
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Ref

LARGEST = 10 << 20
"""bytes of the largest result that is kept"""
_STAYS = SWITCHES | MERGES | {"Enter", "Exit", "NextIteration", "LoopCond"}


def stateless(op: str) -> bool:
    """Whether an operation gives the same result each time, as far as TensorFlow knows it."""
    from oomproof.frameworks.tensorflow import operation_definition

    known = operation_definition(op)
    return known is not None and not known.is_stateful


def fold_constants(graph: Graph, foldable: Callable[[str], bool] = stateless) -> Graph:
    """The graph with such results as constants; what only they needed is gone."""
    fixed: list[bool] = []
    for node in graph.nodes:
        before = [*(ref[0] for ref in node.inputs), *node.controls]
        fixed.append(not before if node.op == "Const" else _foldable(node, foldable) and all(fixed[n] for n in before))
    if not any(known and node.op != "Const" for known, node in zip(fixed, graph.nodes, strict=True)):
        return graph
    read = {ref for node, known in zip(graph.nodes, fixed, strict=True) if not known for ref in node.inputs}
    read.update(graph.results)
    return _rewrite_graph(graph, fixed, read)


def _foldable(node: Node, foldable: Callable[[str], bool]) -> bool:
    if (
        not node.inputs
        or node.op in _STAYS
        or node.bodies
        or any(out.dtype == "variant" for out in node.outputs)  # a list, into which tensors are put later
        or max((out.bytes for out in node.outputs), default=0) > LARGEST
    ):
        return False
    return foldable(node.op)


def _rewrite_graph(graph: Graph, fixed: list[bool], read: set[Ref]) -> Graph:
    nodes: list[Node] = []
    place: dict[Ref, Ref] = {}
    number_of: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        if fixed[number]:
            for index, output in enumerate(node.outputs):
                if (number, index) in read:
                    place[number, index] = len(nodes), 0
                    attrs = node.attrs if node.op == "Const" else {}
                    nodes.append(Node(node.name, "Const", outputs=(output,), attrs=attrs))
            continue
        number_of[number] = len(nodes)
        place.update({(number, index): (len(nodes), index) for index in range(len(node.outputs))})
        controls = tuple(number_of[each] for each in node.controls if not fixed[each])
        nodes.append(replace(node, inputs=tuple(place[ref] for ref in node.inputs), controls=controls))
    return Graph(
        tuple(nodes),
        tuple(place[ref] for ref in graph.results),
        tuple(number_of[number] for number in graph.targets if not fixed[number]),
        tuple(number_of[number] for number in graph.arguments),
    )
