"""The graph of a step with many images that are treated one after the other, from two graphs of it with few.

Where the parts of images (parts.py) hang one on another, what meets in memory depends on how many there are: nodes that
stand for several, as in more_images.py, would meet as they never do. So the part of an image in the middle is put in
once for each image that is missing, and reads from the part before it what the original reads from the part before.
Sizes grow along a line as there.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from oomproof.trace.tensorflow.graph.graph import Graph, Node, Ref
from oomproof.trace.tensorflow.graph.more_images import Extrapolation, grow_node, grow_output
from oomproof.trace.tensorflow.graph.parts import ImageParts, find_parts

SMALL = 1 << 10
"""bytes of a node's results up to which it does not matter how they grow, nor on which part they hang: constants that
grappler moved or merged"""
UNEVEN = 1
"""nodes by which steps from image to image may differ: ways that take turns in being the longest"""
Key = tuple[int, int]
"""(node of the graph with fewer images, image): the image is -1 for what stands once"""
_ONCE = -1


@dataclass(frozen=True)
class Repeated:
    graph: Graph
    sources: tuple[int, ...]
    """for each node, the one of the graph with fewer images that it is, or is a copy of"""


class NotAlike(Exception):
    """The parts differ, so that none can stand for another."""


def repeat_parts(few: Graph, more: Graph, line: Extrapolation) -> Repeated:
    """``more`` as it would be with ``line.images`` images; ``NotAlike`` where it cannot be told."""
    if line.images <= line.more or line.more < 4:
        raise ValueError(f"{line.images} images from {line.more}: expected more of them, and from 4 on")
    return _Repeating(few, more, line).repeat()


class _Repeating:
    """Images 0, 1 and ``middle`` stay, copies of ``middle`` follow, and the last one comes last."""

    def __init__(self, few: Graph, more: Graph, line: Extrapolation) -> None:
        self.few, self.more, self.line = few, more, line
        fewer, self.parts = find_parts(few, line.few, more, line.more)
        self.last = line.more - 1
        self.middle = self.last - 1
        self.added = line.images - line.more
        self.fewer = self._match_few(fewer)

    def repeat(self) -> Repeated:
        made: dict[Key, tuple[int, list[tuple[Key, int]], list[Key], Node]] = {}
        for number, node in enumerate(self.more.nodes):
            image = self.parts.image[number]
            if image is None:
                made[number, _ONCE] = self._make_once(number, node)
                continue
            for which in self._images_for(image):
                made[self._key(number, which)] = self._make_in_part(number, node, image, which)
        return self._put_in_order(made)

    def _images_for(self, image: int) -> list[int]:
        if image < self.middle:
            return [image]
        if image == self.middle:
            return list(range(self.middle, self.middle + self.added + 1))
        return [image + self.added]

    # Where a node of a part is

    def _key(self, number: int, which: int) -> Key:
        """The node at the same place as ``number``, in the part of image ``which`` of the large step."""
        if self.parts.image[number] is None:
            return number, _ONCE
        found = self.parts.nodes.get((self.parts.place[number], self._source_of(which)))
        if found is None:
            if self._is_small(number):
                return self._as_it_was(number)
            raise NotAlike(self.more.nodes[number].name)
        return found, which

    def _source_of(self, which: int) -> int:
        """The image whose part stands for that of image ``which`` of the large step."""
        return which if which < self.middle else self.last if which == self.line.images - 1 else self.middle

    def _as_it_was(self, number: int) -> Key:
        image = self.parts.image[number]
        assert image is not None
        return number, image + self.added * (image == self.last)

    def _is_small(self, number: int) -> bool:
        return sum(output.bytes for output in self.more.nodes[number].outputs) <= SMALL

    def _ref(self, ref: Ref, which: int) -> tuple[Key, int]:
        number, output = ref
        if number in self.parts.splits:
            return (number, _ONCE), which
        return self._key(number, which), output

    # A node of a part

    def _make_in_part(
        self, number: int, node: Node, image: int, which: int
    ) -> tuple[int, list[tuple[Key, int]], list[Key], Node]:
        inputs = [self._read(number, nth, ref, image, which) for nth, ref in enumerate(node.inputs)]
        controls = [self._wait(number, control, image, which) for control in node.controls]
        name = node.name if which == image else f"{node.name}_image_{which}"
        return number, inputs, controls, replace(self._grow(number), name=name)

    def _read(self, number: int, nth: int, ref: Ref, image: int, which: int) -> tuple[Key, int]:
        there = self.parts.image_of(ref)
        if there is None:
            return (ref[0], _ONCE), ref[1]
        if image >= self.middle and self._moves_along(number, nth, image):
            return self._ref(ref, which + there - image)
        return self._ref(ref, there + self.added * (there == self.last))

    def _moves_along(self, number: int, nth: int, image: int) -> bool:
        """Whether what a node reads is as far from its image in the part in the middle as in the one before it; if
        not, all parts read the same."""
        mine, before = (self._find(number, each) for each in (self.middle, self.middle - 1))
        if mine is None or before is None:
            return self._tell_unlike(number)
        refs = [self.more.nodes[each].inputs for each in (before, mine)]
        if len(refs[0]) != len(refs[1]):
            return self._tell_unlike(number)
        earlier, later = (each[nth] for each in refs)
        if earlier == later:
            return False
        if not self._is_moved(earlier, later):
            return self._tell_unlike(later[0])
        if image == self.middle:
            return True
        ref = self.more.nodes[number].inputs[nth]
        return self._is_moved(later, ref)

    def _is_moved(self, earlier: Ref, later: Ref) -> bool:
        """The same tensor, one image on."""
        before, after = (self.parts.image_of(each) for each in (earlier, later))
        if before is None or after is None or after - before != 1:
            return False
        if earlier[0] in self.parts.splits:
            return earlier[0] == later[0]
        return self.parts.place[earlier[0]] == self.parts.place.get(later[0]) and earlier[1] == later[1]

    def _tell_unlike(self, number: int) -> Literal[False]:
        if not self._is_small(number):
            raise NotAlike(self.more.nodes[number].name)
        return False

    def _find(self, number: int, image: int) -> int | None:
        return self.parts.nodes.get((self.parts.place[number], image))

    def _wait(self, number: int, control: int, image: int, which: int) -> Key:
        there = self.parts.image[control]
        if there is None:
            return control, _ONCE
        if image >= self.middle:
            before = self._find(number, image - 1)
            sibling = self._find(control, there - 1)
            if before is not None and sibling in self.more.nodes[before].controls:
                return self._key(control, which + there - image)
        return self._as_it_was(control)

    # A node that stands once

    def _make_once(self, number: int, node: Node) -> tuple[int, list[tuple[Key, int]], list[Key], Node]:
        grown = self._grow_split(number, node) if number in self.parts.splits else self._grow(number)
        return number, self._gather(node.inputs), self._gather_controls(node.controls), grown

    def _gather(self, refs: Sequence[Ref]) -> list[tuple[Key, int]]:
        """Where it reads from all parts, from the new ones too, between the one in the middle and the last."""
        images = [self.parts.image_of(ref) for ref in refs]
        count = Counter(images)
        from_all = count[self.middle] > 0 and len({count[image] for image in range(self.line.more)}) == 1
        found: list[tuple[Key, int]] = []
        nth = 0
        while nth < len(refs):
            image = images[nth]
            if image is None:
                found.append(((refs[nth][0], _ONCE), refs[nth][1]))
                nth += 1
                continue
            end = nth
            while end < len(refs) and images[end] == image:
                end += 1
            run = refs[nth:end]
            if image == self.middle and from_all:
                backwards = self.last in images[:nth] and (end == len(refs) or images[end] != self.last)
                new = self._images_for(image)
                for which in reversed(new) if backwards else new:
                    found.extend(self._ref(ref, which) for ref in run)
            else:
                found.extend(self._ref(ref, image + self.added * (image == self.last)) for ref in run)
            nth = end
        return found

    def _gather_controls(self, controls: Sequence[int]) -> list[Key]:
        found: list[Key] = []
        these = set(controls)
        for control in controls:
            image = self.parts.image[control]
            if image is None:
                found.append((control, _ONCE))
            elif image == self.middle and {self._find(control, image - 1), self._find(control, self.last)} & these:
                found.extend(self._key(control, which) for which in self._images_for(image))
            else:
                found.append(self._as_it_was(control))
        return found

    # Sizes

    def _match_few(self, few: ImageParts) -> dict[int, Node]:
        """For each node, the one with fewer images that stands for the same."""
        found: dict[int, Node] = {}
        for (place, image), number in self.parts.nodes.items():
            same = few.nodes.get((place, min(image, self.line.few - 1)))
            if same is not None:
                found[number] = self.few.nodes[same]
        for kin, numbers in self.parts.kins.items():
            once = [number for number in numbers if self.parts.image[number] is None]
            others = [number for number in few.kins.get(kin, ()) if few.image[number] is None]
            if len(once) == len(others):
                found |= {number: self.few.nodes[other] for number, other in zip(once, others, strict=True)}
        return found

    def _grow(self, number: int) -> Node:
        node, before = self.more.nodes[number], self.fewer.get(number)
        if before is None or _forms(before) != _forms(node):
            self._tell_unlike(number)
            return node
        return grow_node(before, node, self.line)

    def _grow_split(self, number: int, node: Node) -> Node:
        before = self.fewer.get(number)
        if before is None or not before.outputs:
            raise NotAlike(node.name)
        grown = [grow_output(before.outputs[0], output, self.line) for output in node.outputs]
        first, middle, last = grown[: self.middle], grown[self.middle], grown[self.last]
        return replace(node, outputs=(*first, *[middle] * (self.added + 1), last))

    # All of them

    def _put_in_order(self, made: dict[Key, tuple[int, list[tuple[Key, int]], list[Key], Node]]) -> Repeated:
        """Each after what it depends on, and else in the order of the originals."""
        waiting: dict[Key, int] = {}
        users: dict[Key, list[Key]] = {key: [] for key in made}
        for key, (_, inputs, controls, _) in made.items():
            before = dict.fromkeys([*(each[0] for each in inputs), *controls])
            waiting[key] = len(before)
            for each in before:
                if each not in users:
                    raise NotAlike(self.more.nodes[each[0]].name)
                users[each].append(key)
        ready = [key for key, count in waiting.items() if not count]
        heapq.heapify(ready)
        number_of: dict[Key, int] = {}
        while ready:
            key = heapq.heappop(ready)
            number_of[key] = len(number_of)
            for user in users[key]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, user)
        if len(number_of) != len(made):
            raise NotAlike("parts that wait for one another")
        nodes, sources = list[Node](), list[int]()
        for key in number_of:
            source, inputs, controls, node = made[key]
            refs = tuple((number_of[each], output) for each, output in inputs)
            waits = tuple(dict.fromkeys(number_of[each] for each in controls))
            nodes.append(replace(node, inputs=refs, controls=waits))
            sources.append(source)

        def now(number: int) -> int:
            image = self.parts.image[number]
            return number_of[(number, _ONCE) if image is None else self._as_it_was(number)]

        graph = Graph(
            tuple(nodes),
            tuple((number_of[key], output) for key, output in self._gather(self.more.results)),
            tuple(dict.fromkeys(number_of[key] for key in self._gather_controls(self.more.targets))),
            tuple(now(number) for number in self.more.arguments),
        )
        self._require_steady(graph.levels(), number_of)
        return Repeated(graph, tuple(sources))

    def _require_steady(self, levels: Sequence[int], number_of: Mapping[Key, int]) -> None:
        """``NotAlike`` where copies are less far from one another than the originals.

        How far a node is from the beginning is the largest of several ways, each of which is longer by the same with
        every image, or shorter: from image to image the difference cannot shrink. It does where what made one part
        wait for the other was lost, and then copies would meet in memory that never do.
        """
        images = range(1, self.line.images)
        for place in {self.parts.place[number] for number in self.parts.place if not self._is_small(number)}:
            sources = [self.parts.nodes.get((place, self._source_of(which))) for which in images]
            if None in sources:
                continue
            keys = [(number, which) for number, which in zip(sources, images, strict=True) if number is not None]
            found = [levels[number_of[key]] for key in keys]
            steps = [after - before for before, after in pairwise(found)]
            if any(later < earlier - UNEVEN for earlier, later in pairwise(steps)):
                raise NotAlike(self.more.nodes[keys[0][0]].name)


def _forms(node: Node) -> list[tuple[str, int]]:
    return [(output.dtype, len(output.shape)) for output in node.outputs]
