"""The order of edges, against TensorFlow's rules for its table of addresses worked out by hand."""

from __future__ import annotations

from itertools import pairwise

from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output
from oomproof.trace.tensorflow.order.edges import edges_of, order_by_hash


def fan(count: int) -> Graph:
    """One node and ``count`` that read it."""
    value = (Output((1,), "float32", 4),)
    return Graph((Node("x", "MatMul", outputs=value), *(Node(f"u{n}", "Relu", ((0, 0),)) for n in range(count))), ())


def test_a_table_is_gone_through_by_hash_and_not_by_arrival() -> None:
    # The place in a table of eight is the address, and a 64th of it, in units of 256 bytes.
    assert order_by_hash([5 * 256, 2 * 256, 0, 9 * 256]) == [2, 3, 1, 0]


def test_a_place_that_is_taken_sends_on_by_one_then_by_two() -> None:
    # All four belong in the first place; they land in 0, 1, 3 and 6.
    assert order_by_hash([0, 32, 64, 96, 4 * 256]) == [0, 1, 2, 4, 3]


def test_a_table_grows_before_it_is_nearly_full() -> None:
    # In a table of eight, place 8 is place 0, and sends the others on. The seventh makes it a table of sixteen.
    addresses = [8 * 256, 0, 256, 2 * 256, 3 * 256, 4 * 256]
    assert order_by_hash(addresses) == [0, 1, 2, 3, 4, 5]
    assert order_by_hash([*addresses, 5 * 256]) == [1, 2, 3, 4, 5, 6, 0]


def test_eight_edges_are_a_list_and_nine_a_table() -> None:
    listed = list(range(1, 9))
    assert all(edges_of(fan(8), seed).users[0] == listed for seed in (None, *range(5)))
    assert edges_of(fan(9)).users[0] == [*listed, 9]
    mixed = [edges_of(fan(9), seed).users[0] for seed in range(5)]
    assert any(each != [*listed, 9] for each in mixed)
    assert all(sorted(each) == [*listed, 9] for each in mixed)


def test_first_nodes_lie_side_by_side_in_memory() -> None:
    """Eight edges of 32 bytes share a place: in a table, neighbours stay near each other more often than by chance."""
    graph = Graph(tuple(Node(f"c{n}", "Const") for n in range(400)), ())
    for seed in range(5):
        first = edges_of(graph, seed).first
        assert sorted(first) == list(range(400))
        near = sum(abs(one - other) <= 8 for one, other in pairwise(first))
        assert near > 40  # by chance, 16
        assert first != sorted(first)
