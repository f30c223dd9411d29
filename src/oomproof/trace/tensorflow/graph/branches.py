"""Of every condition in a graph, the branch that makes more memory; the other one goes.

TensorFlow's optimizer turns conditions into Switch and Merge nodes. A Switch sends its input one of two ways; what is
on the other way does not run, nor does anything that needs it; a Merge takes the input that came.
"""

from __future__ import annotations

from dataclasses import replace

from oomproof.trace.tensorflow.graph.graph import Graph, Node, Ref

SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
MERGES = frozenset({"Merge", "RefMerge"})


def take_branches(graph: Graph) -> Graph:
    """The graph with one branch of each condition."""
    conditions = list(dict.fromkeys(node.inputs[1] for node in graph.nodes if node.op in SWITCHES))
    if not conditions:
        return graph
    ways = dict.fromkeys(conditions, 1)
    for condition in conditions:
        # One after the other, with the others as they are: enough where conditions are not nested, and never wrong.
        ways[condition] = max((1, 0), key=lambda way: _live_bytes(graph, {**ways, condition: way}))
    return _without(graph, _dead(graph, ways), ways)


def _dead(graph: Graph, ways: dict[Ref, int]) -> list[bool]:
    """Which nodes do not run."""
    dead: list[bool] = []
    for node in graph.nodes:
        gone = [_is_gone(graph, ref, dead, ways) for ref in node.inputs]
        if node.op in MERGES:
            dead.append(all(gone))
        else:
            dead.append(any(gone) or any(dead[number] for number in node.controls))
    return dead


def _is_gone(graph: Graph, ref: Ref, dead: list[bool], ways: dict[Ref, int]) -> bool:
    source = graph.nodes[ref[0]]
    return dead[ref[0]] or (source.op in SWITCHES and ref[1] != ways[source.inputs[1]])


def _live_bytes(graph: Graph, ways: dict[Ref, int]) -> int:
    dead = _dead(graph, ways)
    return sum(
        output.bytes
        for node, gone in zip(graph.nodes, dead, strict=True)
        if not gone and node.op not in SWITCHES and node.op not in MERGES
        for output in node.outputs
    )


def _without(graph: Graph, dead: list[bool], ways: dict[Ref, int]) -> Graph:
    place: dict[int, int] = {}
    nodes: list[Node] = []
    for number, node in enumerate(graph.nodes):
        if dead[number]:
            continue
        refs = [ref for ref in node.inputs if not _is_gone(graph, ref, dead, ways)]
        inputs = tuple((place[ref[0]], ref[1]) for ref in refs)
        place[number] = len(nodes)
        controls = tuple(place[each] for each in node.controls if not dead[each])
        nodes.append(replace(node, inputs=inputs, controls=controls))
    return Graph(
        tuple(nodes),
        tuple((place[ref[0]], ref[1]) for ref in graph.results if not dead[ref[0]]),
        tuple(place[number] for number in graph.targets if not dead[number]),
        tuple(place[number] for number in graph.arguments),
    )
