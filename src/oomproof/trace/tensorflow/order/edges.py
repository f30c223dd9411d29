"""In which order TensorFlow goes through the edges that leave a node: which of two ready nodes is seen first.

Up to eight edges are a list, in the order in which they were made (EdgeSet, TensorFlow 2.21). More of them are a hash
table over their addresses: their order changes from process to process. The edges to the nodes with which a step begins
are the largest such table. They are made one after the other, so their addresses are known but for where the first one
lies, and the table's rules can be followed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from oomproof.trace.tensorflow.graph.graph import Graph

LISTED = 8
"""edges that are kept as a list"""
_EDGE = 32
"""bytes of one"""
_BLOCK = 8192
"""edges are cut from blocks of memory of that size"""
_IN_BLOCK = _BLOCK // _EDGE
_BETWEEN = 16
"""what malloc puts between two blocks"""
_PAGE = 4096
_FULL = 0.8
"""a table is made larger when that much of it is taken"""
_WIDTH = 8
"""places of the smallest table"""


@dataclass(frozen=True)
class Edges:
    """A graph's edges as one process goes through them."""

    first: list[int]
    """nodes that wait for nothing"""
    users: list[list[int]]
    """for each node, those that wait for it: once for each tensor they read, then once if they merely wait"""


def edges_of(graph: Graph, seed: int | None = None) -> Edges:
    """As they were made; with a seed, as one of the processes has them that this seed stands for."""
    users: list[list[int]] = [[] for _ in graph.nodes]
    waiting: list[list[int]] = [[] for _ in graph.nodes]
    first: list[int] = []
    for number, node in enumerate(graph.nodes):
        for source, _ in node.inputs:
            users[source].append(number)
        for source in node.controls:
            waiting[source].append(number)
        if not node.inputs and not node.controls:
            first.append(number)
    if seed is not None:
        chance = random.Random(seed)
        if len(first) > LISTED:
            first = [first[place] for place in order_by_hash(_addresses(users, waiting, first, chance))]
        for data, control in zip(users, waiting, strict=True):
            if len(data) + len(control) > LISTED:
                # Between these edges lies what else was made meanwhile: as good as any order.
                chance.shuffle(data)
                chance.shuffle(control)
    return Edges(first, [[*data, *control] for data, control in zip(users, waiting, strict=True)])


def _addresses(
    users: Sequence[Sequence[int]], waiting: Sequence[Sequence[int]], first: Sequence[int], chance: random.Random
) -> list[int]:
    """Where the edges to the first nodes lie. They are made when the graph is complete, node by node, together with
    the edges that lead from the last nodes to the end of the step."""
    start = chance.randrange(1 << 32) * _PAGE
    place = chance.randrange(_IN_BLOCK)
    begins = set(first)
    found: list[int] = []
    for number in range(len(users)):
        if number in begins:
            block, rest = divmod(place, _IN_BLOCK)
            found.append(start + block * (_BLOCK + _BETWEEN) + rest * _EDGE)
            place += 1
        if not users[number] and not waiting[number]:
            place += 1
    return found


def order_by_hash(addresses: Sequence[int]) -> list[int]:
    """Places in ``addresses`` as TensorFlow's table of addresses (FlatSet) goes through them."""
    table: list[int | None] = [None] * _WIDTH
    for place in range(len(addresses)):
        if place >= int(len(table) * _FULL):
            older, table = table, [None] * _room(place + 1)
            for each in older:
                if each is not None:
                    _put(table, addresses, each)
        _put(table, addresses, place)
    return [each for each in table if each is not None]


def _room(count: int) -> int:
    room = _WIDTH
    while count >= _FULL * room:
        room *= 2
    return room


def _put(table: list[int | None], addresses: Sequence[int], place: int) -> None:
    address = addresses[place]
    index = (address + (address >> 6)) >> 8 & len(table) - 1
    probes = 1
    while table[index] is not None:
        index = index + probes & len(table) - 1
        probes += 1
    table[index] = place
