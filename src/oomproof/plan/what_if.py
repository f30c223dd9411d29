"""What a step would hold under other settings, worked out from a step that was traced: Timeline in, Timeline out.

Estimates that steer the search. What the search chooses is traced in full before anybody is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.activity import PLAIN, Work
from oomproof.memory.timeline import KINDS, PHASES, Ints, Timeline

Bools = NDArray[np.bool_]

_GRADIENT, _OPTIMIZER, _TEMPORARY = (KINDS.index(kind) for kind in ("gradient", "optimizer", "temporary"))
_FIXED = tuple(KINDS.index(kind) for kind in ("parameter", "buffer", "gradient", "optimizer"))
_FORWARD, _BACKWARD, _UPDATE = (PHASES.index(phase) for phase in ("forward", "backward", "optimizer"))
QUANTISED = 0.27
"""part that 8-bit state with a scale for every 256 numbers keeps of fp32 state, small tensors that stay as they are
included"""

LARGEST_PART = 32 << 20
"""bytes of one part, when anchors are matched a part at a time"""


def step_start(timeline: Timeline) -> int:
    """The tick at which the steady step begins: the forward in which its first work is done. A step from a file shows
    no work; there it is the last forward that follows an update and comes before a backward."""
    phases, ticks = timeline.mark_phase.tolist(), timeline.mark_tick.tolist()
    if len(timeline.work):
        first = int(timeline.work.tick.min())
        forwards = (tick for tick, phase in zip(ticks, phases, strict=True) if phase == _FORWARD)
        return max((tick for tick in forwards if tick <= first), default=0)
    starts = [
        tick
        for place, (tick, phase) in enumerate(zip(ticks, phases, strict=True))
        if phase == _FORWARD and (place == 0 or phases[place - 1] not in (_FORWARD, _BACKWARD))
        if _BACKWARD in phases[place:] or _BACKWARD not in phases  # what follows the last update is no step
    ]
    return starts[-1] if starts else 0


def grows_with_images(timeline: Timeline) -> Bools:
    """Blocks whose size is that of the batch, not that of the weights."""
    fixed = np.isin(timeline.kind, _FIXED) | (timeline.phase == _UPDATE) | (timeline.phase == PHASES.index("setup"))
    weights = timeline.bytes[timeline.kind == KINDS.index("parameter")]
    casts = [place for place, op in enumerate(timeline.ops) if op == "_to_copy"]
    half_weights = np.isin(timeline.op, casts) & np.isin(timeline.bytes * 2, weights)
    batch = timeline.kind == KINDS.index("input")
    grows: Bools = batch | ~(fixed | half_weights)
    return grows


def scaled(timeline: Timeline, factor: float, rows: Bools | None = None, work: Bools | None = None) -> Timeline:
    """With ``factor`` times as many images (or whatever else ``rows`` and ``work`` grow with)."""
    if factor == 1:
        return timeline
    chosen = grows_with_images(timeline) if rows is None else rows
    done = timeline.work.phase != _UPDATE if work is None else work
    return replace(
        timeline,
        bytes=np.where(chosen, np.rint(timeline.bytes * factor).astype(np.int64), timeline.bytes),
        work=timeline.work.scaled(np.where(done, factor, 1.0)),
    )


def with_larger_images(timeline: Timeline, pixels: float) -> Timeline:
    """With ``pixels`` times as many pixels an image. What is counted in boxes and proposals stays as it is."""
    heads = np.array(["roi_heads" in owner for owner in timeline.owners], dtype=bool)
    rows = grows_with_images(timeline) & ~heads[timeline.owner]
    work = (timeline.work.phase != _UPDATE) & ~heads[timeline.work.owner]
    return scaled(timeline, pixels, rows, work)


def accumulated(timeline: Timeline) -> Timeline:
    """As a later micro-batch of an accumulated step: the gradients of the earlier ones are there from its start, and
    each new one is added to them."""
    if _was_traced_with(timeline, "accumulate", 1) > 1:
        return timeline
    start = step_start(timeline)
    kept = (timeline.kind == _GRADIENT) & (timeline.died >= timeline.ticks)
    dropped = (timeline.kind == _GRADIENT) & (timeline.died < timeline.ticks) & (timeline.died >= start)
    return replace(
        timeline,
        born=np.where(kept, np.minimum(timeline.born, start), timeline.born),
        died=np.where(dropped, np.minimum(timeline.died, start), timeline.died),
        work=_with_additions(timeline, np.flatnonzero(kept & (timeline.born >= start))),
    )


def gradients_dropped_first(timeline: Timeline) -> Timeline:
    """Old gradients go before forward, not after it."""
    start = step_start(timeline)
    old = (timeline.kind == _GRADIENT) & (timeline.born < start) & (timeline.died < timeline.ticks)
    return replace(timeline, died=np.where(old, np.minimum(timeline.died, start), timeline.died))


def updated_one_by_one(timeline: Timeline) -> Timeline:
    """The optimizer works through the parameters, not on lists of all: of its temporaries, one is there at a time."""
    if _was_traced_with(timeline, "update", "auto") == "plain":
        return timeline
    lists = (timeline.phase == _UPDATE) & (timeline.kind == _TEMPORARY)
    count = max(1, int(((timeline.kind == _GRADIENT) & (timeline.died >= timeline.ticks)).sum()))
    launches = timeline.work.phase == _UPDATE
    return replace(
        timeline,
        bytes=np.where(lists, _largest_only(timeline, lists), timeline.bytes),
        work=_repeated(timeline.work, launches, count),
        about=_as_if_traced_with(timeline, "update", "plain"),
    )


def state_elsewhere(timeline: Timeline, bits: int) -> Timeline:
    """Optimizer state of which the device keeps only ``bits`` bits a number outside of the update."""
    state = timeline.kind == _OPTIMIZER
    kept = QUANTISED if bits else 0.0
    small = updated_one_by_one(timeline)
    return replace(small, bytes=np.where(state, np.rint(small.bytes * kept).astype(np.int64), small.bytes))


def state_bytes(timeline: Timeline) -> int:
    """The optimizer's state."""
    return int(timeline.bytes[(timeline.kind == _OPTIMIZER) & (timeline.died >= timeline.ticks)].sum())


def matched_in_parts(timeline: Timeline) -> Timeline:
    """Anchors are matched with boxes a part at a time. What matching holds is owned by the detector itself, its RPN or
    its RoI heads, not by their layers, and is gone before backward."""
    whole = str(timeline.about.get("model", ""))
    matching = np.array([owner in ("rpn", "roi_heads", whole) for owner in timeline.owners], dtype=bool)
    held = matching[timeline.owner] & (timeline.phase == _FORWARD) & (timeline.kind == _TEMPORARY)
    return replace(timeline, bytes=np.where(held, np.minimum(timeline.bytes, LARGEST_PART), timeline.bytes))


def _was_traced_with(timeline: Timeline, name: str, default: Any) -> Any:
    return timeline.about.get("settings", {}).get(name, default)


def _as_if_traced_with(timeline: Timeline, name: str, value: Any) -> Mapping[str, Any]:
    """The story of a step, for the next what-if: no effect may be counted twice."""
    return {**timeline.about, "settings": {**timeline.about.get("settings", {}), name: value}}


def _with_additions(timeline: Timeline, gradients: Ints) -> Work:
    """One operation more for every gradient: two tensors are read, one is written."""
    work, count = timeline.work, len(gradients)
    more = Work(
        tick=timeline.born[gradients],
        owner=timeline.owner[gradients],
        phase=np.full(count, _BACKWARD),
        flops=np.zeros(count, dtype=np.int64),
        bytes=3 * timeline.bytes[gradients],
        form=np.full(count, PLAIN),
    )
    return work.joined(more)


def _largest_only(timeline: Timeline, rows: Bools) -> Ints:
    """Of blocks that are alive together only the largest counts: the others become empty."""
    kept = np.zeros(len(timeline), dtype=bool)
    chosen = np.flatnonzero(rows)
    if len(chosen):
        kept[chosen[np.argmax(timeline.bytes[chosen])]] = True
    result: Ints = np.where(rows & ~kept, 0, timeline.bytes)
    return result


def _repeated(work: Work, rows: Bools, count: int) -> Work:
    """List-at-once operations as one for every parameter."""
    times = np.where(rows, count, 1)
    place = np.repeat(np.arange(len(work)), times)
    shares = np.repeat(times, times)
    return replace(
        work,
        tick=work.tick[place],
        owner=work.owner[place],
        phase=work.phase[place],
        flops=work.flops[place] // shares,
        bytes=work.bytes[place] // shares,
        form=work.form[place],
    )
