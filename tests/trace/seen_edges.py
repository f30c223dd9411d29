"""The one thing about a step's order that no model can know: how this process's hash tables list edges.

It is read off a profile. All the rest of the order must then follow from the executor's rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.trace.tensorflow.buffers.kernels import CHEAP
from oomproof.trace.tensorflow.graph.graph import Graph
from oomproof.trace.tensorflow.order.edges import LISTED, Edges, edges_of


def edges_as_seen(graph: Graph, ran: Sequence[str]) -> Edges:
    """Edges in tables, in an order from which the profile ``ran`` follows: of the nodes that become ready at once, a
    CPU's thread takes the last one first. Where edges are a list, they stay as they are."""
    place = {name: number for number, name in enumerate(dict.fromkeys(ran))}
    when = [place.get(node.name, len(place)) for node in graph.nodes]
    edges = edges_of(graph)
    users = [
        sorted(each, key=lambda number: -when[number]) if len(each) > LISTED else list(each) for each in edges.users
    ]
    first: dict[int, None] = {}
    for number in sorted(_ready_at_once(graph), key=lambda number: -when[number]):
        first.update(dict.fromkeys(_roots(graph, number)))
    return Edges([*first, *(number for number in edges.first if number not in first)], users)


def _ready_at_once(graph: Graph) -> list[int]:
    """Expensive nodes that wait for nothing but cheap ones."""
    early: list[bool] = []
    found: list[int] = []
    for number, node in enumerate(graph.nodes):
        ready = all(early[source] for source in (*(ref[0] for ref in node.inputs), *node.controls))
        early.append(ready and node.op in CHEAP)
        if ready and node.op not in CHEAP:
            found.append(number)
    return found


def _roots(graph: Graph, number: int) -> list[int]:
    """The first nodes that a node waits for."""
    found: list[int] = []
    stack = [number]
    while stack:
        here = stack.pop()
        node = graph.nodes[here]
        before = [*(ref[0] for ref in node.inputs), *node.controls]
        if not before and here != number:
            found.append(here)
        stack.extend(before)
    return found
