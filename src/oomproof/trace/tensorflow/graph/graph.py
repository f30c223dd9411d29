"""A step's graph in plain data: nodes, what they read, how large their results are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Ref = tuple[int, int]
"""(node, output) of a tensor"""


@dataclass(frozen=True)
class Output:
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    """0 for what is not memory of tensors: handles of variables, strings"""


@dataclass(frozen=True)
class Node:
    name: str
    op: str
    inputs: tuple[Ref, ...] = ()
    controls: tuple[int, ...] = ()
    """nodes that must have run before, although nothing is read from them"""
    outputs: tuple[Output, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    bodies: tuple[Graph, ...] = ()
    """what a loop runs: its condition, its body"""
    times: int = 1
    """nodes that this one stands for, one for each of so many images (more_images.py)"""


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which each comes after what it depends on."""

    nodes: tuple[Node, ...]
    results: tuple[Ref, ...]
    targets: tuple[int, ...] = ()
    """nodes that run for their effect"""
    arguments: tuple[int, ...] = ()
    """the nodes that stand for what is handed in, in the order in which it is"""

    def output(self, ref: Ref) -> Output:
        return self.nodes[ref[0]].outputs[ref[1]]

    def uses(self) -> dict[Ref, int]:
        """How often each tensor is read; results are read once more, by the caller."""
        count: dict[Ref, int] = {}
        for node in self.nodes:
            for ref in node.inputs:
                count[ref] = count.get(ref, 0) + 1
        for ref in self.results:
            count[ref] = count.get(ref, 0) + 1
        return count

    def levels(self) -> list[int]:
        """Of each node: nodes on the longest way to it, itself included."""
        ways: list[int] = []
        for node in self.nodes:
            before = [*(ref[0] for ref in node.inputs), *node.controls]
            ways.append(1 + max((ways[number] for number in before), default=0))
        return ways

    def depth(self) -> int:
        """Nodes on the longest way through."""
        return max(self.levels(), default=0)

    def users(self) -> list[list[int]]:
        """For each node, those that wait for it, each once."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for before in dict.fromkeys([*(ref[0] for ref in node.inputs), *node.controls]):
                found[before].append(number)
        return found
