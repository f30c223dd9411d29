"""Of every condition in a graph, the branch that makes more memory; the other one goes.

TensorFlow's optimizer turns conditions into Switch and Merge nodes. A Switch sends its input one of two ways; what is
on the other way does not run, nor does anything that needs it; a Merge takes the input that came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush

from oomproof.trace.tensorflow.graph.graph import Graph, Node, Ref

SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
MERGES = frozenset({"Merge", "RefMerge"})


def take_branches(graph: Graph) -> Graph:
    """The graph with one branch of each condition."""
    switches: dict[Ref, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        if node.op in SWITCHES:
            switches.setdefault(node.inputs[1], []).append(number)
    if not switches:
        return graph
    ways, users = dict.fromkeys(switches, 1), graph.users()
    dead = _dead(graph, ways)
    for condition, sending in switches.items():
        # One after the other, with the others as they are: enough where conditions are not nested, and never wrong.
        changed = _turn(graph, users, dead, {**ways, condition: 0}, sending)
        if sum(_made_bytes(graph.nodes[number]) * (-1 if gone else 1) for number, gone in changed.items()) > 0:
            ways[condition] = 0
            for number, gone in changed.items():
                dead[number] = gone
    return _without(graph, dead, ways)


def _dead(graph: Graph, ways: dict[Ref, int]) -> list[bool]:
    """Which nodes do not run."""
    dead: list[bool] = []
    for node in graph.nodes:
        dead.append(_does_not_run(graph, node, dead.__getitem__, ways))
    return dead


def _turn(
    graph: Graph, users: list[list[int]], dead: list[bool], ways: dict[Ref, int], sending: list[int]
) -> dict[int, bool]:
    """The nodes that ``ways`` change beside ``dead``, and whether they are dead then. ``sending``: the switches of the
    condition that was turned. Of many thousand nodes it changes a few, and there may be hundreds of conditions."""
    changed: dict[int, bool] = {}

    def is_dead(number: int) -> bool:
        return changed[number] if number in changed else dead[number]

    waiting = sorted({user for number in sending for user in users[number]})
    seen = set(waiting)
    while waiting:
        number = heappop(waiting)
        gone = _does_not_run(graph, graph.nodes[number], is_dead, ways)
        if gone != dead[number]:
            changed[number] = gone
            for user in users[number]:
                if user not in seen:
                    seen.add(user)
                    heappush(waiting, user)
    return changed


def _does_not_run(graph: Graph, node: Node, is_dead: Callable[[int], bool], ways: dict[Ref, int]) -> bool:
    gone = (_is_gone(graph, ref, is_dead, ways) for ref in node.inputs)
    if node.op in MERGES:
        return all(gone)
    return any(gone) or any(map(is_dead, node.controls))


def _is_gone(graph: Graph, ref: Ref, is_dead: Callable[[int], bool], ways: dict[Ref, int]) -> bool:
    source = graph.nodes[ref[0]]
    return is_dead(ref[0]) or (source.op in SWITCHES and ref[1] != ways[source.inputs[1]])


def _made_bytes(node: Node) -> int:
    return 0 if node.op in SWITCHES or node.op in MERGES else sum(output.bytes for output in node.outputs)


def _without(graph: Graph, dead: list[bool], ways: dict[Ref, int]) -> Graph:
    place: dict[int, int] = {}
    nodes: list[Node] = []
    for number, node in enumerate(graph.nodes):
        if dead[number]:
            continue
        refs = [ref for ref in node.inputs if not _is_gone(graph, ref, dead.__getitem__, ways)]
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
