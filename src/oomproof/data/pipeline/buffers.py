"""What a pipeline keeps in host memory, as data: an element, a buffer of elements, all buffers of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field

from oomproof.data.pipeline.stages import Options, Stage

HEAP = 3.0
"""What a process holds for each live byte at worst: 2.4 was measured with malloc as it is, where runs of the same
pipeline differed by a third."""

MAPPED = 32 << 20
"""Blocks above this glibc always takes from the system, and gives back. Smaller ones come from its heap once one of
their size was freed, since that raises its threshold (M_MMAP_THRESHOLD)."""
GAPS = {"shuffle": 0.8, "interleave": 0.3, "cache": 0.2}
"""Bytes of gaps in the heap for each byte of elements that leave out of order, in order, or never.

TensorFlow asks for aligned blocks, which glibc (2.36) cuts out of larger ones, so that the hole of an element is too
small for the next of its size until a neighbour has left too: where they leave in any order, nearly half of the heap is
holes. That is so in one arena as in many (MALLOC_ARENA_MAX=1). Measured on pipelines that had filled their shuffle
buffer four times and more (bench/tf_data.py --plain): 0.65 to 1.1."""
GAPS_OF_BATCHES = 1.2
"""The same for elements that are being put together to a batch; and for batches, where elements settle in the holes
that these leave. Measured: 0.6 to 1.9."""

COPIES = 3
"""Copies of an array when from_tensor_slices takes it and when the first iterator is made: the program's own, the
dataset's, and one on the way. One stays. Measured with TensorFlow 2.21: 3.0 times the array, 4.0 where it is kept."""


@dataclass(frozen=True)
class Element:
    """One element at some place of the pipeline."""

    bytes: int
    high: int
    leading: tuple[int, ...] = ()
    """batch sizes, the outermost first: TensorFlow does not know them where the last batch may be smaller"""
    shared: bool = False
    """its storage belongs to a cache or an array further up: holding it costs nothing more"""


@dataclass(frozen=True)
class Buffer:
    """Elements that one stage keeps."""

    stage: str
    count: int
    """elements, as expected; 0 where bytes are not made of elements"""
    element: int
    """bytes of one"""
    expected: int
    high: int
    why: str
    shared: bool = False
    of: Stage | None = None


@dataclass(frozen=True)
class Pipeline:
    """What the data takes of the host's memory beside the training itself."""

    last: Stage
    buffers: tuple[Buffer, ...]
    element: Element
    """what the training gets: a batch"""
    assumed: tuple[str, ...] = ()
    """what had to be guessed, in words"""
    not_counted: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    arrays: int = 0
    """bytes of the arrays that the dataset was made of"""
    sizes: tuple[tuple[Stage, Element], ...] = ()
    """every stage with one of its elements, the sources first"""

    def element_of(self, stage: Stage) -> Element:
        return next(element for each, element in self.sizes if each is stage)

    @property
    def steady(self) -> int:
        """Bytes that are live while the training runs."""
        return sum(each.expected for each in self.buffers)

    @property
    def live(self) -> int:
        """Bytes that are live at the peak, which arrays may have before the first step."""
        return max(self.steady, COPIES * self.arrays)

    @property
    def expected(self) -> int:
        """What the process holds for them with malloc as it is."""
        return max(self.steady + self.gaps, COPIES * self.arrays)

    @property
    def gaps(self) -> int:
        """Bytes that malloc keeps between elements that stay and batches that come and go."""
        batch = self.element.bytes
        held = [each for each in self.buffers if each.expected and each.count and each.element <= MAPPED]
        gaps = sum(GAPS.get(each.stage, 0.0) * each.expected for each in held)
        gaps += GAPS_OF_BATCHES * sum(each.expected for each in held if each.stage == "batch")
        if any(each.stage in GAPS and each.element < batch for each in held):
            made = (each for each in held if each.element == batch and each.stage not in (*GAPS, "batch"))
            gaps += GAPS_OF_BATCHES * sum(each.expected for each in made)
        return int(gaps)

    @property
    def high(self) -> int:
        """The most that the process may hold for them, gaps in its heap included."""
        arrays = 2 * self.arrays  # too large for the heap, and never moved
        moving = sum(each.high for each in self.buffers) - arrays
        return int(max(HEAP * moving + arrays, (COPIES + 1) * self.arrays))
