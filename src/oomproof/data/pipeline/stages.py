"""A tf.data pipeline as plain data: which transformation follows which, and how large one element is at each.

Nothing here knows TensorFlow: walk.py makes these from the user's dataset, prices.py reads them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

AUTOTUNE = -1
INFINITE, UNKNOWN = -1, -2
"""what ``Dataset.cardinality`` says instead of a number"""
GIVEN = "Given"
"""the kind of a dataset that a function gets as its argument, as after window(): it is priced where it is made"""
ALIGNED = 64
"""bytes: a slice of a tensor that begins at a multiple of this is handed on without a copy"""


@dataclass(frozen=True)
class Assumed:
    """What counts where a dataset does not say how large something is. Pass your own to ``pipeline_of``."""

    side: int = 640
    side_high: int = 1333
    """an unknown side of a shape: the long side of a COCO photo, and what detectors commonly enlarge it to"""
    text: int = 160 << 10
    text_high: int = 1 << 20
    """a string of unknown length: a COCO JPEG, and a large photo"""
    elements: int | None = None
    """how many elements a source has that does not know it (records, generators): the length of the data set"""
    cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    """processors of the machine that trains: AUTOTUNE goes by them"""


@dataclass(frozen=True)
class Part:
    """One tensor of an element. ``shape`` is None where not even the number of sides is known; a side may be None."""

    shape: tuple[int | None, ...] | None
    dtype: str
    item: int
    """bytes of one value; 0 for a string, whose length the type does not tell"""

    def count_bytes(self, leading: tuple[int, ...], side: int, text: int) -> int:
        """Bytes, with batch sizes for the first unknown sides and ``side`` for the others."""
        shape = (*leading, None, None, 3) if self.shape is None else self.shape
        known = [
            leading[place] if each is None and place < len(leading) else side if each is None else each
            for place, each in enumerate(shape)
        ]
        return prod(known) * (self.item or text)

    def is_guessed(self, leading: tuple[int, ...]) -> bool:
        if self.shape is None or not self.item:
            return True
        return any(each is None and place >= len(leading) for place, each in enumerate(self.shape))


@dataclass(frozen=True)
class Stage:
    """One transformation (or source) and what feeds it."""

    kind: str
    """the transformation's name in TensorFlow without Dataset: Shuffle, ParallelMap, TensorSlice ..."""
    parts: tuple[Part, ...]
    """the tensors of one element that comes out"""
    inputs: tuple[Stage, ...] = ()
    settings: Mapping[str, int] = field(default_factory=dict)
    """buffer_size, batch_size, num_parallel_calls ...: -1 is AUTOTUNE"""
    elements: int = UNKNOWN
    """how many elements come out in one pass"""
    inner: Stage | None = None
    """the dataset that the function of an interleave or flat_map makes of one element"""
    own: int = 0
    """bytes that a source itself holds: the arrays of from_tensor_slices"""
    facts: frozenset[str] = frozenset()
    """what else is known: ``stateful`` (a function that cannot be run in parallel unasked), ``on_disk`` (a cache),
    ``python`` (elements come from Python code), ``decodes`` (a function that decodes images)"""

    def walk(self) -> Iterator[Stage]:
        """This stage and all that feed it, the last first."""
        yield self
        for each in self.inputs:
            yield from each.walk()


@dataclass(frozen=True)
class Options:
    """What ``with_options`` says of the pipeline, as far as memory is concerned."""

    autotune: bool = True
    inject_prefetch: bool = True
    map_parallelization: bool = True


def kind_of(name: str) -> str:
    """_ParallelMapDataset and ParallelMapDatasetV2 are both ParallelMap."""
    return re.sub(r"Dataset(V\d+)?$", "", name.lstrip("_"))
