"""What a step would hold under other settings, worked out from a step that was traced: Timeline in, Timeline out.

Estimates that steer the search. What the search chooses is traced in full before anybody is told.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.about import About
from oomproof.memory.activity import PLAIN, Work
from oomproof.memory.timeline import KINDS, PHASES, Ints, Timeline

Bools = NDArray[np.bool_]

_PARAMETER, _GRADIENT, _OPTIMIZER, _TEMPORARY = (
    KINDS.index(kind) for kind in ("parameter", "gradient", "optimizer", "temporary")
)
_FIXED = tuple(KINDS.index(kind) for kind in ("parameter", "buffer", "gradient", "optimizer"))
_FORWARD, _BACKWARD, _UPDATE = (PHASES.index(phase) for phase in ("forward", "backward", "optimizer"))
QUANTISED = 0.27
"""part that 8-bit state with a scale for every 256 numbers keeps of fp32 state, small tensors that stay as they are
included"""
UPDATED_TOGETHER = 8 << 20
"""bytes of parameters that are updated together where their state is elsewhere"""
SMALLEST_STATE, SMALLEST_IN_8_BITS = 64, 4 * 4096
"""bytes of state that is moved, and that is kept in 8 bits"""
TO_HOST, TO_8_BITS = (1, 2), (25, 42)
"""operations for each tensor of state, and how often they go through its bytes: to the host and back; in 8 bits and
back (counted in traces)"""

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
        if _BACKWARD in phases[place:] or _BACKWARD not in phases  # what follows the last update is not a step
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


def with_images(timeline: Timeline, factor: float) -> Timeline:
    """With ``factor`` times as many images. What is done image by image takes no less for fewer of them."""
    rows = grows_with_images(timeline)
    return scale_images(timeline, factor, rows & ~_one_by_one(timeline) if factor < 1 else rows)


def scale_images(timeline: Timeline, factor: float, rows: Bools | None = None, work: Bools | None = None) -> Timeline:
    """With ``factor`` times as many images (or whatever else ``rows`` and ``work`` grow with)."""
    if factor == 1:
        return timeline
    chosen = grows_with_images(timeline) if rows is None else rows
    done = timeline.work.phase != _UPDATE if work is None else work
    return replace(
        timeline,
        bytes=np.where(chosen, np.rint(timeline.bytes * factor).astype(np.int64), timeline.bytes),
        work=timeline.work.scale(np.where(done, factor, 1.0)),
    )


def with_larger_images(timeline: Timeline, pixels: float) -> Timeline:
    """With ``pixels`` times as many pixels an image. What is counted in boxes and proposals stays as it is."""
    heads = _find_owned(timeline, timeline.about.per_box)
    rows = grows_with_images(timeline) & ~heads[timeline.owner]
    work = (timeline.work.phase != _UPDATE) & ~heads[timeline.work.owner]
    return scale_images(timeline, pixels, rows, work)


def accumulate_gradients(timeline: Timeline) -> Timeline:
    """As a later micro-batch of an accumulated step: the gradients of the earlier ones are there from its start, and
    each new one is added to them. Frameworks that keep no gradients after a step (Keras) have a sum of them beside."""
    if _read_setting(timeline, "accumulate", 1) > 1:
        return timeline
    if _read_setting(timeline, "gradients", "kept") == "at_once":  # added to the momentum, each by itself
        return timeline
    start = step_start(timeline)
    kept = (timeline.kind == _GRADIENT) & (timeline.died >= timeline.ticks)
    dropped = (timeline.kind == _GRADIENT) & (timeline.died < timeline.ticks) & (timeline.died >= start)
    if not kept.any():
        weights = timeline.kind == _PARAMETER
        sums = _with_blocks(timeline, int(timeline.bytes[weights].sum()), (0, timeline.ticks), KINDS.index("buffer"))
        return replace(sums, work=_with_additions(timeline, np.flatnonzero(weights)))
    new = np.flatnonzero(kept & (timeline.born >= start))
    added = replace(
        timeline,
        born=np.where(kept, np.minimum(timeline.born, start), timeline.born),
        died=np.where(dropped, np.minimum(timeline.died, start), timeline.died),
        work=_with_additions(timeline, new),
    )
    made = timeline.born[new]
    return _with_blocks(added, timeline.bytes[new], (made, made + 1), phase=_BACKWARD)


def use_gradients_at_once(timeline: Timeline) -> Timeline:
    """Each gradient goes when the next block comes; there are none of the step before. It is added to the momentum, or
    its parameter is updated then (changes/torch/gradients.py)."""
    if _read_setting(timeline, "gradients", "kept") == "at_once":
        return timeline
    summed = timeline.about.at_once == "any"
    timeline = timeline if summed else update_one_by_one(timeline)
    gradient = timeline.kind == _GRADIENT
    passing = gradient & (timeline.born >= step_start(timeline))
    gone = gradient & ~passing | (summed & (timeline.phase == _UPDATE) & (timeline.kind == _TEMPORARY))
    work = _move_sums(timeline, np.flatnonzero(passing)) if summed else timeline.work
    return replace(
        timeline,
        died=np.where(passing, timeline.born + 1, timeline.died),
        bytes=np.where(gone, 0, timeline.bytes),
        work=work if summed else replace(work, phase=np.where(work.phase == _UPDATE, _BACKWARD, work.phase)),
        about=_with_setting(timeline, "gradients", "at_once"),
    )


def drop_gradients_first(timeline: Timeline) -> Timeline:
    """Old gradients go before forward, not after it."""
    start = step_start(timeline)
    old = (timeline.kind == _GRADIENT) & (timeline.born < start) & (timeline.died < timeline.ticks)
    return replace(timeline, died=np.where(old, np.minimum(timeline.died, start), timeline.died))


def update_one_by_one(timeline: Timeline) -> Timeline:
    """The optimizer works through the parameters, not on lists of all: of its temporaries, one is there at a time, or
    two where it keeps two numbers for each weight."""
    if _read_setting(timeline, "update", "auto") == "plain" or _one_launch_each(timeline):
        return timeline
    lists = (timeline.phase == _UPDATE) & (timeline.kind == _TEMPORARY)
    gradients = _gradients(timeline)
    at_once = max(1, round(state_bytes(timeline) / max(1, int(gradients.sum()))))
    second = timeline.born >= step_start(timeline)
    kept = _largest(timeline, lists & second, at_once) | _largest(timeline, lists & ~second, at_once)
    launches = timeline.work.phase == _UPDATE
    return replace(
        timeline,
        bytes=np.where(lists & ~kept, 0, timeline.bytes),
        work=_repeat_launches(timeline.work, launches, max(1, len(gradients))),
        about=_with_setting(timeline, "update", "plain"),
    )


def state_elsewhere(timeline: Timeline, bits: int) -> Timeline:
    """Optimizer state of which the device keeps only ``bits`` bits a number outside of the update. Parameters are
    updated some at a time, with their whole state on the device."""
    gradients, state = _gradients(timeline), timeline.kind == _OPTIMIZER
    parts = _parts(gradients)
    share = max(parts) / max(1, sum(parts))
    sizes = np.where(state, np.rint(timeline.bytes * (QUANTISED if bits else 0.0)).astype(np.int64), timeline.bytes)
    work, smallest = timeline.work, SMALLEST_IN_8_BITS if bits else SMALLEST_STATE
    if _read_setting(timeline, "update", "auto") != "plain" and not _one_launch_each(timeline):
        lists = (timeline.phase == _UPDATE) & (timeline.kind == _TEMPORARY)
        sizes = np.where(lists, np.rint(timeline.bytes * share).astype(np.int64), sizes)
        work = _repeat_launches(work, work.phase == _UPDATE, len(parts))
    moved = np.flatnonzero(state & (timeline.died >= timeline.ticks) & (timeline.bytes >= smallest))
    launches, passes = TO_8_BITS if bits else TO_HOST
    more = _work(timeline, np.repeat(moved, launches), np.repeat(timeline.bytes[moved] * passes // launches, launches))
    held = int(state_bytes(timeline) * share)
    ticks = timeline.mark_tick[timeline.mark_phase == _UPDATE]
    updated_from = int(ticks[-1]) if len(ticks) else timeline.ticks
    elsewhere = replace(timeline, bytes=sizes, work=work.join(more))
    return _with_blocks(elsewhere, held, (updated_from, timeline.ticks))


def state_bytes(timeline: Timeline) -> int:
    """The optimizer's state."""
    return int(timeline.bytes[(timeline.kind == _OPTIMIZER) & (timeline.died >= timeline.ticks)].sum())


def match_in_parts(timeline: Timeline) -> Timeline:
    """Anchors are matched with boxes a part at a time."""
    held = _one_by_one(timeline)
    return replace(timeline, bytes=np.where(held, np.minimum(timeline.bytes, LARGEST_PART), timeline.bytes))


def _one_by_one(timeline: Timeline) -> Bools:
    """What matching holds, image by image, and gives back before backward."""
    matching = _find_owned(timeline, timeline.about.matchers)
    held: Bools = matching[timeline.owner] & (timeline.phase == _FORWARD) & (timeline.kind == _TEMPORARY)
    return held


def _find_owned(timeline: Timeline, owners: Collection[str]) -> Bools:
    """By number of an owner, whether it is one of these."""
    return np.array([owner in owners for owner in timeline.owners], dtype=bool)


def _one_launch_each(timeline: Timeline) -> bool:
    """The update goes through the parameters as it is, which is PyTorch's choice on a CPU: no list of all of them."""
    return int((timeline.work.phase == _UPDATE).sum()) >= max(2, len(_gradients(timeline)))


def _read_setting(timeline: Timeline, name: str, default: Any) -> Any:
    return timeline.about.settings.get(name, default)


def _with_setting(timeline: Timeline, name: str, value: Any) -> About:
    """The story of a step, for the next what-if: no effect may be counted twice."""
    return replace(timeline.about, settings=timeline.about.settings.with_values({name: value}))


def _move_sums(timeline: Timeline, gradients: Ints) -> Work:
    """The update's passes over all numbers are one fewer: that one is made in backward, gradient by gradient, as it is
    anyway where micro-batches are accumulated."""
    updating = timeline.work.phase == _UPDATE
    passes = updating.sum() / (len(_gradients(timeline)) if _one_launch_each(timeline) else 1)
    fewer = replace(timeline, work=timeline.work.scale(np.where(updating, 1 - 1 / max(2, passes), 1.0)))
    return fewer.work if _read_setting(timeline, "accumulate", 1) > 1 else _with_additions(fewer, gradients)


def _with_additions(timeline: Timeline, gradients: Ints) -> Work:
    """One operation more for every gradient: two tensors are read, one is written."""
    more = _work(timeline, gradients, 3 * timeline.bytes[gradients], _BACKWARD)
    return timeline.work.join(more)


def _work(timeline: Timeline, rows: Ints, nbytes: Ints, phase: int = _UPDATE) -> Work:
    """An operation for each of ``rows``, when what it works on is born in the step; in the update: at the end."""
    nothing = np.zeros(len(rows), dtype=np.int64)
    tick = np.maximum(timeline.born[rows], step_start(timeline) if phase != _UPDATE else timeline.ticks)
    return Work(tick, timeline.owner[rows], nothing + phase, nothing, nbytes, nothing + PLAIN)


def _with_blocks(
    timeline: Timeline,
    sizes: Ints | int,
    lives: tuple[Ints | int, Ints | int],
    kind: int = _TEMPORARY,
    phase: int = _UPDATE,
) -> Timeline:
    """More blocks, or one more, each from a tick to another."""
    born, died = lives
    more = {"born": born, "died": died, "bytes": sizes, "kind": kind, "phase": phase, "owner": 0, "op": 0, "shape": 0}
    count = np.size(sizes)
    columns: dict[str, Any] = {
        name: np.append(getattr(timeline, name), np.broadcast_to(values, count)) for name, values in more.items()
    }
    return replace(timeline, **columns)


def _gradients(timeline: Timeline) -> Ints:
    """Bytes of each that is there when the step ends, or was used in it."""
    passing = _read_setting(timeline, "gradients", "kept") == "at_once"
    there = timeline.born >= step_start(timeline) if passing else timeline.died >= timeline.ticks
    sizes: Ints = timeline.bytes[(timeline.kind == _GRADIENT) & there]
    return sizes


def _parts(sizes: Ints) -> list[int]:
    """Bytes of parameters that are updated together."""
    parts = [0]
    for size in sizes.tolist():
        if parts[-1] and parts[-1] + size > UPDATED_TOGETHER:
            parts.append(0)
        parts[-1] += size
    return parts


def _largest(timeline: Timeline, rows: Bools, count: int) -> Bools:
    """The ``count`` largest of some blocks."""
    chosen = np.flatnonzero(rows)
    kept = np.zeros(len(timeline), dtype=bool)
    kept[chosen[np.argsort(-timeline.bytes[chosen], kind="stable")[:count]]] = True
    return kept


def _repeat_launches(work: Work, rows: Bools, count: int) -> Work:
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
