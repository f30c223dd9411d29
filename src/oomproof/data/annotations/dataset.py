"""What a dataset holds, as columns: COCO's 118,287 images with 860,001 objects take 35 MB.

>>> dataset = oomproof.read_dataset("instances_train2017.json")         # doctest: +SKIP
>>> crowded = dataset.objects.argmax()                                  # doctest: +SKIP
>>> dataset.names[crowded], dataset.widths[crowded], dataset.box_widths[dataset.objects_of(crowded)]   # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class BrokenEntry:
    """Entries that are broken in one way."""

    kind: str
    """what is wrong, as docs/data.md lists it: «box without area»"""
    count: int
    examples: tuple[str, ...]
    """the first few, by file, image or place"""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images that can be trained on, in the order of the annotations, and their objects."""

    path: str
    format: str
    """COCO, Pascal VOC, YOLO, TFRecord or image folder"""

    names: tuple[str, ...]
    widths: Integers
    heights: Integers
    """pixels, as stored: before a rotation that the file asks for"""
    turned: Flags
    """the file asks to be shown on its side (EXIF), so that width and height change places; known where it was read"""

    first: Integers
    """objects of image i are first[i] up to first[i + 1]; one more than there are images"""
    box_widths: Floats
    box_heights: Floats
    """pixels, as annotated: also where a box reaches out of its image"""
    vertices: Integers
    """of an object's polygons; 0 where it has none"""
    mask_bytes: Integers
    """of an object's mask, as stored: run lengths as COCO writes them, or a PNG; 0 where it has none"""
    crowd: Flags
    """one box for many objects, which most trainings leave out"""

    record_bytes: Integers | None = None
    """of the record that each image came in, encoded image included; None where images are files of their own"""
    files: int = 0
    """of records; 0 where images are files of their own"""
    problems: tuple[BrokenEntry, ...] = ()
    notes: tuple[str, ...] = ()
    """what was read and what was not: one split of several"""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def objects(self) -> Integers:
        """How many each image has."""
        return np.diff(self.first)

    @property
    def image_vertices(self) -> Integers:
        """Vertices of all polygons of each image."""
        return self._of_images(self.vertices)

    @property
    def image_mask_bytes(self) -> Integers:
        return self._of_images(self.mask_bytes)

    def objects_of(self, image: int) -> slice:
        return slice(int(self.first[image]), int(self.first[image + 1]))

    def _of_images(self, column: Integers) -> Integers:
        until = np.concatenate([[0], np.cumsum(column, dtype=np.int64)])
        return np.asarray(until[self.first[1:]] - until[self.first[:-1]])
