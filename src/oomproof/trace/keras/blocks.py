"""When the blocks of a Keras model ran in a traced step: what a plan needs to choose those to compute again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from oomproof.memory.activity import ModuleCall
from oomproof.memory.timeline import KINDS, PHASES, Timeline

_FORWARD, _INPUT = PHASES.index("forward"), KINDS.index("input")


def with_blocks(timeline: Timeline, model: Any) -> Timeline:
    """The Timeline with a call for each block of the model; ``about.blocks`` says how many can be computed again.

    Blocks follow each other, so one begins where the one before has ended. What it gives on is taken to be the newest
    memory that is left when its last operation has run.
    """
    from oomproof.changes.keras.blocks import blocks_of

    calls: list[ModuleCall] = []
    enter, given = _start(timeline)
    for block in blocks_of(model):
        leave = _end(timeline, block.layers, enter)
        if leave is None:
            continue
        made = np.flatnonzero((timeline.born >= enter) & (timeline.born < leave) & (timeline.died > leave))
        if len(made):
            newest = (int(made[timeline.born[made].argmax()]),)
            calls.append(ModuleCall(block.path, enter, leave, given, newest, 0, block.repeatable, separable=False))
            given = newest
        enter = leave
    count = sum(call.repeatable for call in calls)
    return replace(timeline, modules=tuple(calls), about=replace(timeline.about, blocks=count))


def _start(timeline: Timeline) -> tuple[int, tuple[int, ...]]:
    """The tick at which the steady step begins to work, and the blocks that hold its batch."""
    if not len(timeline.work):
        return 0, ()
    first = int(timeline.work.tick.min())
    batch = (timeline.kind == _INPUT) & timeline.live(first)
    return first, tuple(np.flatnonzero(batch).tolist())


def _end(timeline: Timeline, layers: Iterable[str], enter: int) -> int | None:
    """The tick after the last forward operation of the last of these layers that has one."""
    number = {owner: place for place, owner in enumerate(timeline.owners)}
    work = timeline.work
    for layer in reversed(tuple(layers)):
        ran = work.tick[(work.phase == _FORWARD) & (work.owner == number.get(layer, -1))]
        if len(ran) and ran.max() > enter:
            return int(ran.max())
    return None
