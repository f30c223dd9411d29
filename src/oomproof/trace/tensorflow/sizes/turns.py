"""How many turns a loop takes, where a counter decides: ``while i < 10: ...; i += 1``."""

from __future__ import annotations

from oomproof.trace.tensorflow.graph.graph import Graph, Node, Ref

_SAME = frozenset({"Identity", "_Chosen", "Reshape", "Squeeze"})


def turns_of(graph: Graph, loop: Node) -> int | None:
    """None where it cannot be told before the step runs. Of several conditions, the one that ends first counts."""
    condition, body = loop.bodies
    found = []
    for test in _tests(condition, condition.results[0]):
        place, limit = (_source(condition, ref) for ref in test.inputs)
        if place not in condition.arguments:
            continue
        at = condition.arguments.index(place)
        start, step = _number(graph, loop.inputs[at]), _step(body, at)
        if limit in condition.arguments:
            end = _number(graph, loop.inputs[condition.arguments.index(limit)])
        else:
            end = _number(condition, (limit, 0))
        if start is not None and end is not None and step:
            found.append(max(0, -(-(end - start) // step)))
    return min(found, default=None)


def _tests(condition: Graph, ref: Ref) -> list[Node]:
    node = condition.nodes[_source(condition, ref)]
    if node.op == "LogicalAnd":
        return [test for each in node.inputs for test in _tests(condition, each)]
    return [node] if node.op == "Less" else []


def _step(body: Graph, place: int) -> int | None:
    """By how much the loop's counter grows in each turn."""
    node = body.nodes[_source(body, body.results[place])]
    if node.op not in ("AddV2", "Add"):
        return None
    sides = [_source(body, ref) for ref in node.inputs]
    if body.arguments[place] not in sides:
        return None
    other = node.inputs[1 - sides.index(body.arguments[place])]
    return _number(body, other)


def _source(graph: Graph, ref: Ref) -> int:
    return _origin(graph, ref)[0]


def _origin(graph: Graph, ref: Ref) -> Ref:
    while graph.nodes[ref[0]].op in _SAME and graph.nodes[ref[0]].inputs:
        ref = graph.nodes[ref[0]].inputs[0]
    return ref


def _number(graph: Graph, ref: Ref) -> int | None:
    number, index = _origin(graph, ref)
    node = graph.nodes[number]
    if node.bodies:
        return _left_by(graph, node, index)
    value = node.attrs.get("value")
    return int(value[0]) if value and len(value) == 1 else None


def _left_by(graph: Graph, loop: Node, place: int) -> int | None:
    """What a loop's counter has come to: the loop of the gradients takes as many turns."""
    start, step = _number(graph, loop.inputs[place]), _step(loop.bodies[-1], place)
    turns = turns_of(graph, loop) if start is not None and step else None
    return None if start is None or not step or turns is None else start + turns * step
