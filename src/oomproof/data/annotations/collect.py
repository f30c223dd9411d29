"""Images and objects as they are met in a file, gathered into columns: a few bytes each, in any order."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oomproof.data.annotations import problems as kinds
from oomproof.data.annotations.dataset import Dataset, Flags, Integers
from oomproof.data.annotations.image_header import is_believable
from oomproof.data.annotations.problems import Problems
from oomproof.errors import InputError

Say = Callable[[str, float], None]
"""what is being done, and how much of it is done, 0 to 1"""

MOST_IMAGES = 5_000_000
MOST_OBJECTS = 60_000_000
"""twice what the largest public set of boxes has (Objects365: 2 million images, 30 million boxes)"""
FAR = 1e7
"""pixels; no coordinate is further out"""
BESIDE = 1.0
"""pixels that a box may reach out of its image: annotations are rounded, and Pascal VOC counts from 1"""


@dataclass
class Collector:
    """Grows while a file is read; ``build`` makes the Dataset of it."""

    path: Path
    format: str
    problems: Problems = field(default_factory=Problems)
    notes: list[str] = field(default_factory=list)

    names: list[str] = field(default_factory=list)
    widths: array[int] = field(default_factory=lambda: array("i"))
    heights: array[int] = field(default_factory=lambda: array("i"))
    turned: bytearray = field(default_factory=bytearray)
    there: bytearray = field(default_factory=bytearray)
    """1 where the image itself was met, 0 where so far only annotations of it"""
    rows: dict[Hashable, int] = field(default_factory=dict)

    images: array[int] = field(default_factory=lambda: array("i"))
    boxes: array[float] = field(default_factory=lambda: array("f"))
    """x, y, width, height of each object, one behind the other"""
    vertices: array[int] = field(default_factory=lambda: array("i"))
    mask_bytes: array[int] = field(default_factory=lambda: array("i"))
    crowd: bytearray = field(default_factory=bytearray)
    record_bytes: array[int] = field(default_factory=lambda: array("q"))
    """of the record that each image came in; empty where images are files of their own"""

    def row(self, key: Hashable) -> int:
        """The row of an image whose annotation may come before it does."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = self._new_row()
        return row

    def add_image(self, name: str, width: int, height: int, key: Hashable = None, turned: bool = False) -> int | None:
        """A new image, its row; none if its key came before. Sides of 0 are not known yet."""
        row = self._new_row() if key is None else self.row(key)
        if self.there[row]:
            self.problems.add(kinds.DUPLICATE_IMAGE, f"{key}: {name}")
            return None
        self.there[row] = 1
        self.names[row] = name
        self.set_size(row, width, height, turned)
        return row

    def set_size(self, row: int, width: int, height: int, turned: bool = False) -> None:
        believable = is_believable(width, height)
        self.widths[row], self.heights[row] = (int(width), int(height)) if believable else (0, 0)
        self.turned[row] = turned

    def add_object(
        self, row: int, x: float, y: float, width: float, height: float, *, vertices: int, mask_bytes: int, crowd: bool
    ) -> bool:
        """False if the box is nowhere near an image, or is not a number."""
        if not (-FAR < x < FAR and -FAR < y < FAR and -FAR < width < FAR and -FAR < height < FAR):
            return False
        if len(self.images) >= MOST_OBJECTS:
            raise InputError(f"{self.path} has more than {MOST_OBJECTS:,} objects, more than any known dataset")
        self.images.append(row)
        self.boxes.extend((x, y, width, height))
        self.vertices.append(min(vertices, 1 << 30))
        self.mask_bytes.append(min(mask_bytes, 1 << 30))
        self.crowd.append(crowd)
        return True

    def build(self) -> Dataset:
        """Images that have a size, with their objects; InputError if there are none."""
        there = np.frombuffer(self.there, np.bool_)
        widths, heights = np.frombuffer(self.widths, np.int32), np.frombuffer(self.heights, np.int32)
        kept = there & (widths > 0)
        self._tell(kinds.NO_SIZE, there & ~kept, np.arange(len(there)))
        if not kept.any():
            raise InputError(self._describe_nothing())
        images = np.frombuffer(self.images, np.int32)
        usable = self._usable_objects(images, there, kept, widths, heights)
        renumbered = np.cumsum(kept) - 1
        order = _in_order(renumbered[images[usable]])
        chosen = np.flatnonzero(usable)[order]
        boxes = np.frombuffer(self.boxes, np.float32).reshape(-1, 4)
        counts = np.bincount(renumbered[images[usable]], minlength=int(kept.sum()))
        return Dataset(
            path=str(self.path),
            format=self.format,
            names=tuple(name for name, keep in zip(self.names, kept, strict=True) if keep),
            widths=widths[kept],
            heights=heights[kept],
            turned=np.frombuffer(self.turned, np.bool_)[kept],
            first=np.concatenate([[0], np.cumsum(counts)]),
            box_widths=boxes[chosen, 2],
            box_heights=boxes[chosen, 3],
            vertices=np.frombuffer(self.vertices, np.int32)[chosen],
            mask_bytes=np.frombuffer(self.mask_bytes, np.int32)[chosen],
            crowd=np.frombuffer(self.crowd, np.bool_)[chosen],
            record_bytes=np.frombuffer(self.record_bytes, np.int64)[kept] if self.record_bytes else None,
            problems=self.problems.list_entries(),
            notes=tuple(self.notes),
        )

    def _new_row(self) -> int:
        if len(self.names) >= MOST_IMAGES:
            raise InputError(f"{self.path} has more than {MOST_IMAGES:,} images, more than any known dataset")
        self.names.append("")
        self.widths.append(0)
        self.heights.append(0)
        self.turned.append(0)
        self.there.append(0)
        return len(self.names) - 1

    def _usable_objects(
        self, images: Integers, there: Flags, kept: Flags, widths: Integers, heights: Integers
    ) -> NDArray[np.bool_]:
        x, y, wide, high = np.frombuffer(self.boxes, np.float32).reshape(-1, 4).T
        unknown = ~there[images]
        if unknown.any():
            keys = {row: key for key, row in self.rows.items() if not self.there[row]}
            first = dict.fromkeys(images[unknown].tolist())
            for place, row in zip(range(kinds.EXAMPLES), first, strict=False):
                self.problems.add(kinds.UNKNOWN_IMAGE, f"image {keys[row]}", 0 if place else int(unknown.sum()))
        usable = kept[images]
        flat = usable & ((wide <= 0) | (high <= 0))
        self._tell(kinds.NO_AREA, flat, images)
        usable &= ~flat
        turned = np.frombuffer(self.turned, np.bool_)
        shown = np.where(turned, heights, widths)[images], np.where(turned, widths, heights)[images]
        out = (x < -BESIDE) | (y < -BESIDE) | (x + wide > shown[0] + BESIDE) | (y + high > shown[1] + BESIDE)
        self._tell(kinds.OUTSIDE, usable & out, images)
        return usable

    def _tell(self, kind: str, which: Flags, images: Integers) -> None:
        count = int(which.sum())
        named = dict.fromkeys(images[np.flatnonzero(which)[:10_000]].tolist())  # many may be of one image
        for place, row in zip(range(kinds.EXAMPLES), named, strict=False):
            self.problems.add(kind, self.names[row], 0 if place else count)

    def _describe_nothing(self) -> str:
        found = self.problems.list_entries()
        if not found:
            return f"{self.path} ({self.format}) has no images in it: expected annotations or images"
        worst = found[0]
        count, example = worst.count, worst.examples[0]
        where = f"{count:,} times (such as {example})" if count > 1 else f"once ({example})"
        return f"no image of {self.path} ({self.format}) can be used: {worst.kind}, {where}"


def _in_order(images: Integers) -> Integers | slice:
    """The order that puts objects beside those of the same image; as they are where that is so already."""
    if (images[1:] >= images[:-1]).all():
        return slice(None)
    return np.argsort(images, kind="stable")
