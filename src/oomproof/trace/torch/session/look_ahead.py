"""The largest of a loader's first batches comes before the others: a training needs what its largest batch needs.

The script is stopped after two steps, so the batches that it happens to load first would decide the answer. A few more
are loaded, none is made up, and the second largest goes to the first step, the largest to the second, which has the
optimizer's state beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any

import torch

BATCHES = 64
"""batches that are looked at, unless the user says how many"""
SECONDS = 10.0
SECONDS_TO_DRAW = 2.0
"""for the order of an epoch, before any of it is loaded"""
BYTES = 1 << 30
"""of batches that are kept meanwhile"""
ALIKE = 4
"""batches of one shape after which no other is expected"""
_DEPTH = 4


def spread_batches(drawn: Iterator[Any], length: int) -> Iterator[Any]:
    """An epoch's batches (as their images' numbers) in another order: those that are looked at are spread over all of
    it. A loader may be sorted by length, and its first batches say nothing of the last. The very last is often not
    full, so it keeps its place.

    >>> list(spread_batches(iter(range(9)), 9))
    [0, 7, 4, 1, 2, 3, 5, 6, 8]
    """
    begin, known = time.monotonic(), []
    for batch in islice(drawn, length):
        known.append(batch)
        if time.monotonic() - begin > SECONDS_TO_DRAW:
            break
    full = max(1, len(known) - 1)
    first = dict.fromkeys((0, full - 1, full // 2, *(place * full // BATCHES for place in range(BATCHES))))
    order = [place for place in first if place < len(known)]
    yield from (known[place] for place in order)
    yield from (batch for place, batch in enumerate(known) if place not in first)
    yield from drawn


@dataclass(frozen=True)
class Held:
    """What a batch holds: bytes with its images padded to one size, and the shape of its largest part."""

    nbytes: int
    shape: str
    shapes: tuple[tuple[int, ...], ...]


@dataclass(eq=False)
class LookAhead:
    """The batches of one iterator. ``batches``: how many to look at; None: as many as time and memory allow."""

    batches: int | None = None
    held: list[Held] = field(default_factory=list)
    _kept: list[Any] = field(default_factory=list)
    _largest: Any = None
    _handed_at: int | None = None
    """updates that were made when the largest was handed over"""

    def hand_over(self, load: Callable[[], Any], updates: int) -> Any:
        """The next batch; ``updates``: how many the script has made."""
        if not self.held:
            self._look(load)
        if self._handed_at == 0 and updates and len(self.held) > 1:
            self._handed_at = updates
            return self._largest  # the first step had it among its micro-batches; the second has more beside it
        if not self._kept:
            return load()
        batch = self._kept.pop(0)
        if batch is self._largest:
            self._handed_at = updates
        return batch

    def _look(self, load: Callable[[], Any]) -> None:
        begin, found = time.monotonic(), 0
        for _ in range(BATCHES if self.batches is None else max(1, self.batches)):
            try:
                batch = load()
            except StopIteration:
                if not self.held:
                    raise  # an empty loader
                break
            held = measure_batch(batch)
            self._kept.append(batch)
            self.held.append(held)
            found += held.nbytes
            alike = len(self.held) >= ALIKE and len({each.shapes for each in self.held}) == 1
            if self.batches is None and (alike or found > BYTES or time.monotonic() - begin > SECONDS):
                break
        order = sorted(range(len(self._kept)), key=lambda place: -self.held[place].nbytes)
        first = order[1::-1]  # the second largest, then the largest
        rest = [place for place in range(len(self._kept)) if place not in first]
        self._largest = self._kept[order[0]]
        self._kept = [self._kept[place] for place in (*first, *rest)]

    @property
    def largest(self) -> Held:
        return max(self.held, key=lambda each: each.nbytes)


def describe_batches(held: list[Held]) -> str:
    """What a report says of the batches that were looked at.

    >>> describe_batches([Held(10, "2x3x480x640", ((10,),)), Held(16, "2x3x800x1066", ((16,),))])
    'the larger of 2 batches looked at, 2x3x800x1066 (the smaller: 2x3x480x640); a later one may be larger'
    """
    if not held:
        return ""
    if len(held) == 1:
        return f"the first batch, {held[0].shape}; a later one may be larger"
    most, least = max(held, key=lambda each: each.nbytes), min(held, key=lambda each: each.nbytes)
    if len({each.shapes for each in held}) == 1:
        return f"batches of {most.shape}" if most.shape else ""
    words = ("larger", "smaller") if len(held) == 2 else ("largest", "smallest")
    other = f" (the {words[1]}: {least.shape})" if least.shape != most.shape else ", by what goes with its images"
    return f"the {words[0]} of {len(held)} batches looked at, {most.shape}{other}; a later one may be larger"


def measure_batch(batch: Any) -> Held:
    """
    >>> images = [torch.zeros(3, 10, 30), torch.zeros(3, 20, 10)]
    >>> held = measure_batch((images, [{"boxes": torch.zeros(5, 4)}]))
    >>> held.nbytes == 2 * 3 * 20 * 30 * 4 + 5 * 4 * 4, held.shape
    (True, '2x3x20x30')
    """
    parts = list(_parts(batch, _DEPTH))
    largest = max(parts, key=lambda part: part[0], default=(0, ()))
    shapes = tuple(shape for _, shape in parts)
    return Held(sum(nbytes for nbytes, _ in parts), "x".join(map(str, largest[1])), shapes)


def _parts(value: Any, depth: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(bytes, shape) of all tensors; images of several sizes as one tensor that holds them all."""
    if isinstance(value, torch.Tensor):
        yield value.numel() * value.element_size(), tuple(value.shape)
    elif depth == 0:
        return
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _parts(each, depth - 1)
    elif isinstance(value, list | tuple):
        if _are_images(value):
            shape = (len(value), *(max(sizes) for sizes in zip(*(each.shape for each in value), strict=True)))
            yield prod(shape) * value[0].element_size(), shape
        else:
            for each in value:
                yield from _parts(each, depth - 1)
    elif hasattr(value, "__dict__"):  # a class of the user's, such as DETR's NestedTensor
        yield from _parts(vars(value), depth - 1)


def _are_images(values: list[Any] | tuple[Any, ...]) -> bool:
    return len(values) > 0 and all(isinstance(each, torch.Tensor) and each.dim() == 3 for each in values)
