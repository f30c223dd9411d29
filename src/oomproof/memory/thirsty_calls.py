"""What one thirsty call makes the allocator keep.

A workspace lives while its call runs, and its cached block serves the calls after it. So a kernel that takes all it may
costs most where the others take what is usual: where all of them are thirsty, each finds the block of the one before.
Published figures jump by just that much: MNASNet and MobileNetV2 by the im2col of one layer, ResNetV2-50 in benchmark
mode by the Fourier transform of one (docs/accuracy.md). The upper figure is the most that any one of the thirstiest
calls leads to, with the rest as expected, or with none at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from oomproof.memory.allocators.replaying import Replay
from oomproof.memory.fewer_boxes import most_by_fewer_boxes
from oomproof.memory.scratch import recurrent
from oomproof.memory.smaller_steps import most_by_smaller
from oomproof.memory.timeline import Ints, Timeline

THIRSTIEST = 4
"""kinds of calls that are tried, such as forward and backward of the two largest layers: a guess. In SSD the fifth and
sixth changed nothing."""
WORTH_TRYING = 0.01
"""of the peak without workspaces; less than that drowns in the margin"""

Replaying = Callable[[Timeline, int | None], Replay]


def most_reserved(base: Timeline, scratch: tuple[Ints, Ints, Ints], replay: Replaying) -> int:
    """Bytes by this step, a smaller one, or one with fewer boxes, whichever call is thirsty; ``scratch`` is expected,
    low and high."""
    histories = list(_histories(base, scratch))
    reserved = [replay(history, None).reserved for history in histories]
    most = max(reserved)
    worst = histories[reserved.index(most)]
    return max(most, most_by_smaller(worst, replay), most_by_fewer_boxes(histories, replay))


def _histories(base: Timeline, scratch: tuple[Ints, Ints, Ints]) -> Iterator[Timeline]:
    expected, low, high = scratch
    usuals = (expected,) if np.array_equal(expected, low) else (expected, low)
    for usual in usuals:
        yield recurrent.widen_reserves(base.with_scratch(usual))
    peak = base.peak().bytes
    for spec in _thirstiest(base.calls.spec, high - expected, int(WORTH_TRYING * peak)):
        thirsty = base.calls.spec == spec
        for usual in usuals:
            yield recurrent.widen_reserves(base.with_scratch(np.where(thirsty, high, usual)))


def _thirstiest(specs: Ints, more: Ints, least: int) -> list[int]:
    """Calls that may take the most beyond what is expected of them."""
    by_spec = dict(zip(specs.tolist(), more.tolist(), strict=True))
    worth = [spec for spec, bytes_more in by_spec.items() if bytes_more > least]
    return sorted(worth, key=lambda spec: -by_spec[spec])[:THIRSTIEST]
