"""What slightly smaller steps would reserve: more work never has a lower upper figure.

How an allocator's gaps come out is a matter of luck: a batch of 8 may leave 3 GiB of them where one of 9 leaves none. A
forecast that counts on such luck is wrong as soon as a kernel takes a little less or more, so the upper figure is the
most that this step, or the same step with fewer or smaller images, would reserve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.allocators.cuda_segments import SMALL_SIZE
from oomproof.memory.allocators.replaying import Replay
from oomproof.memory.timeline import KINDS, Timeline

A_DOUBLING = 16
"""sizes that are looked at between one and its double"""
SIZES = 10
"""that are looked at, down to two thirds: most of the luck lies between one size and the next"""

_OF_THE_MODEL = [KINDS.index(kind) for kind in ("parameter", "buffer", "gradient", "optimizer")]


def most_by_smaller(timeline: Timeline, replay: Callable[[Timeline, int | None], Replay]) -> int:
    """Bytes reserved by smaller steps than this one; 0 for a step that holds nothing but the model."""
    return max((replay(smaller, None).reserved for smaller in smaller_steps(timeline)), default=0)


def smaller_steps(timeline: Timeline) -> Iterator[Timeline]:
    """The sizes are the same for every step that they lie below: a larger batch looks at those of a smaller one. Small
    blocks have no say in them, as they come from segments of their own and do not all grow with the batch or boxes."""
    fixed = np.isin(timeline.kind, _OF_THE_MODEL)
    if fixed.all():
        return
    size = replace(timeline, bytes=np.where(fixed | (timeline.bytes <= SMALL_SIZE), 0, timeline.bytes)).peak().bytes
    first = math.floor(math.log2(max(1, size)) * A_DOUBLING)
    for step in range(SIZES):
        share = 2 ** ((first - step) / A_DOUBLING) / max(1, size)
        yield _shrink(timeline, fixed, min(1.0, share))


def _shrink(timeline: Timeline, fixed: NDArray[np.bool_], share: float) -> Timeline:
    shrunk = np.maximum(1, (timeline.bytes * share).astype(np.int64))
    return replace(timeline, bytes=np.where(fixed | (timeline.bytes == 0), timeline.bytes, shrunk))
