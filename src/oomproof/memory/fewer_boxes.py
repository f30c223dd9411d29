"""What the same step with fewer boxes would reserve: more boxes never have a lower upper figure.

Matching holds blocks of boxes x anchors in the forward pass, and what comes after it is served from their gaps. Whether
it fits in there is luck: a Mask R-CNN of 4 images reserves 0.6 GiB less with 196 boxes than with 190. No training has
the same number of boxes in every image, so nobody can count on that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.allocators.cuda_segments import SMALL_SIZE
from oomproof.memory.allocators.replaying import Replay
from oomproof.memory.batch_spec import MOST_OBJECTS
from oomproof.memory.smaller_steps import smaller_steps
from oomproof.memory.timeline import KINDS, Timeline

Replaying = Callable[[Timeline, int | None], Replay]

COUNTS = (1, 10, 20, 50, MOST_OBJECTS, 100, 150, 200, 300, 400, 600, 1000)
"""boxes in an image that are looked at below those of the step: the same for every step, so that one with more looks at
all that one with fewer does"""
WORTH_TRYING = 0.01
"""of the peak; boxes that take less than that leave no gaps to speak of"""

_PASSING = [KINDS.index(kind) for kind in ("input", "temporary")]
_COLUMNS = ("born", "died", "bytes", "kind", "phase", "owner", "op", "shape")


def most_by_fewer_boxes(histories: Sequence[Timeline], replay: Replaying) -> int:
    """Bytes by the step with fewer boxes; ``histories`` are what may happen in it. 0 where boxes hold little."""
    boxes = int(histories[0].about.settings.of("boxes") or 0)
    counts = [count for count in COUNTS if count < boxes]
    if not counts or not _hold_much(histories[0], boxes):
        return 0
    rows = [go_with_boxes(history, boxes) for history in histories]
    fewer = ([_shrink(*each, count, boxes) for each in zip(histories, rows, strict=True)] for count in counts)
    most, history = max((_find_worst(each, replay) for each in fewer), key=lambda each: each[0])
    return most + replay(history, None).reserved - replay(_only_large(history), None).reserved


def _find_worst(histories: Sequence[Timeline], replay: Replaying) -> tuple[int, Timeline]:
    """Bytes of large blocks in the worst of these histories or in a smaller step like it, and which history it is: a
    step with no more boxes looks at both too. Small blocks come from segments of their own, and are most of the blocks:
    it is quicker to count them once, at the end."""
    found = [(replay(_only_large(each), None).reserved, each) for each in histories]
    most, worst = max(found, key=lambda each: each[0])
    smaller = (replay(_only_large(each), None).reserved for each in smaller_steps(_only_large(worst)))
    return max(most, *smaller), worst


def go_with_boxes(timeline: Timeline, boxes: int) -> NDArray[np.bool_]:
    """Blocks with a dimension of that many boxes, which backward does not need: matching, masks of the annotations.
    Maps of an image have four dimensions; masks have one channel there."""
    sized = [
        shape is not None and boxes in shape and (len(shape) in (2, 3) or shape[:2] == (boxes, 1))
        for shape in timeline.shapes
    ]
    found: NDArray[np.bool_] = np.array(sized)[timeline.shape] & np.isin(timeline.kind, _PASSING)
    return found


def _hold_much(timeline: Timeline, boxes: int) -> bool:
    held = replace(timeline, bytes=np.where(go_with_boxes(timeline, boxes), timeline.bytes, 0)).peak().bytes
    return held > WORTH_TRYING * timeline.peak().bytes


def _shrink(timeline: Timeline, rows: NDArray[np.bool_], count: int, boxes: int) -> Timeline:
    shrunk = np.maximum(1, timeline.bytes * count // boxes)  # to the byte, as a step with that many has them
    return replace(timeline, bytes=np.where(rows & (timeline.bytes > 0), shrunk, timeline.bytes))


def _only_large(timeline: Timeline) -> Timeline:
    large = timeline.bytes > SMALL_SIZE
    return replace(timeline, **{name: getattr(timeline, name)[large] for name in _COLUMNS})
