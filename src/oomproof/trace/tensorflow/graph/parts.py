"""The parts of a graph that stand for one image each, told by name and by what reads what.

A step that treats its images one by one has the same nodes once for every image: a part. TensorFlow numbers names that
are taken, so nodes of one kin (more_images.py) are told apart by their numbers alone. Where a kin has one node for each
image, the numbers follow the images; from there, labels spread along the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oomproof.trace.tensorflow.graph.graph import Graph, Ref

Kin = tuple[str, str]
"""name without numbers, and operation"""
Place = tuple[Kin, int]
"""where a node stands in its part: the same in all parts"""

_NUMBERS = re.compile(r"((?:_\d+)+|(?<![^/])\d+)(?=/|$)")
"""at the end of each part of a name; grappler adds a second one, or names a node by a number alone"""
_BACKWARD = re.compile(r"(?:^|/)gradient")
"""gradients are numbered in the order of the backward pass, which begins with the last image"""


@dataclass(frozen=True)
class ImageParts:
    image: Sequence[int | None]
    """of each node; None for what stands once, whatever the number of images"""
    kins: Mapping[Kin, Sequence[int]]
    """nodes of each kin, in the order of their numbers"""
    place: Mapping[int, Place]
    """of each node of a part"""
    nodes: Mapping[tuple[Place, int], int]
    """(place, image) -> node"""
    splits: frozenset[int]
    """nodes with one result for each image"""

    def image_of(self, ref: Ref) -> int | None:
        node, output = ref
        return output if node in self.splits else self.image[node]


def kin_of(name: str, op: str) -> Kin:
    return _NUMBERS.sub("", name), op


def numbers_of(name: str) -> tuple[tuple[int, ...], ...]:
    """Those of each part of a name, so that the ones without come first."""
    found = []
    for scope in name.split("/"):
        match = _NUMBERS.search(scope)
        found.append(tuple(int(each) for each in match[0].split("_") if each) if match else ())
    return tuple(found)


def find_parts(few: Graph, fewer: int, more: Graph, images: int) -> tuple[ImageParts, ImageParts]:
    """Of two graphs of one step, with so many images each."""
    these, those = _Step(few, fewer, _by_kin(few)), _Step(more, images, _by_kin(more))
    return _find(these, those), _find(those, these)


@dataclass(frozen=True)
class _Step:
    graph: Graph
    images: int
    kins: Mapping[Kin, list[int]]


def _by_kin(graph: Graph) -> dict[Kin, list[int]]:
    found: dict[Kin, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        found.setdefault(kin_of(node.name, node.op), []).append(number)
    for numbers in found.values():
        if len(numbers) > 1:
            numbers.sort(key=lambda number: numbers_of(graph.nodes[number].name))
    return found


def _find(step: _Step, other: _Step) -> ImageParts:
    graph, images, kins = step.graph, step.images, step.kins
    grows = [False] * len(graph.nodes)
    image: list[int | None] = [None] * len(graph.nodes)
    splits = set[int]()
    for kin, numbers in kins.items():
        same = other.kins.get(kin, [])
        if len(numbers) == len(same):
            for number, there in zip(numbers, same, strict=True):
                counts = len(graph.nodes[number].outputs), len(other.graph.nodes[there].outputs)
                if counts == (images, other.images):
                    splits.add(number)
            continue
        for number in numbers:
            grows[number] = True
        if len(numbers) == images and len(same) == other.images and not _BACKWARD.search(kin[0]):
            for which, number in enumerate(numbers):
                image[number] = which
    _spread(graph, image, grows, splits)
    members: dict[tuple[Kin, int], list[int]] = {}
    for kin, numbers in kins.items():
        for number in numbers:
            its = image[number]
            if its is not None:
                members.setdefault((kin, its), []).append(number)
    place = {number: (kin, nth) for (kin, _), these in members.items() for nth, number in enumerate(these)}
    nodes = {((kin, nth), which): number for (kin, which), these in members.items() for nth, number in enumerate(these)}
    return ImageParts(image, kins, place, nodes, frozenset(splits))


def _spread(graph: Graph, image: list[int | None], grows: Sequence[bool], splits: set[int]) -> None:
    """What reads only from one part, or is read by only one, belongs to it. Where tensors do not tell, waiting does:
    what waits for one part belongs to it, even if the next part waits for it; that is how parts hang together."""
    readers: list[list[int]] = [[] for _ in graph.nodes]
    waiters: list[list[int]] = [[] for _ in graph.nodes]
    for number, node in enumerate(graph.nodes):
        for source, _ in node.inputs:
            readers[source].append(number)
        for source in node.controls:
            waiters[source].append(number)

    def join(number: int, around: Iterable[int | None]) -> bool:
        if image[number] is not None or not grows[number]:
            return False
        found = set(around) - {None}
        if len(found) != 1:
            return False
        image[number] = found.pop()
        return True

    count = len(graph.nodes)

    def spread() -> None:
        changed = True
        while changed:
            changed = False
            for number, node in enumerate(graph.nodes):
                sources = (output if source in splits else image[source] for source, output in node.inputs)
                changed |= join(number, sources)
            for number in range(count - 1, -1, -1):
                changed |= join(number, (image[reader] for reader in readers[number]))

    spread()
    changed = True
    while changed:
        changed = False
        for number, node in enumerate(graph.nodes):
            changed |= join(number, (image[each] for each in node.controls))
        spread()
    for number in range(count - 1, -1, -1):
        join(number, (image[each] for each in waiters[number]))
