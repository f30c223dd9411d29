"""Modules that could be computed again, and what choosing one would do to live memory at every tick of a traced step:
what it saves for backward is gone in between, comes back for its own backward, and its inputs stay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.activity import ModuleCall
from oomproof.memory.timeline import KINDS, PHASES, Ints, Timeline
from oomproof.plan.cost import Speed
from oomproof.plan.what_if import grows_with_images

WORTH_IT = 0.003
"""part of the peak that a module must save to be looked at"""
_BACKWARD = PHASES.index("backward")


@dataclass(frozen=True)
class Candidate:
    """A module to compute again, ``chunk`` images at a time (0: all at once)."""

    path: str
    chunk: int
    seconds: float
    """more time for one step"""
    effect: Ints
    """bytes more (or less) at every tick of the step"""

    @property
    def name(self) -> str:
        return f"{self.path}:{self.chunk}" if self.chunk else self.path


class View:
    """The step's columns, cut out once."""

    def __init__(self, timeline: Timeline, speed: Speed, start: int, live: Ints) -> None:
        self.timeline, self.speed, self.start, self.live = timeline, speed, start, live
        self.length = len(live)
        marks = zip(timeline.mark_tick.tolist(), timeline.mark_phase.tolist(), strict=True)
        self.backwards = [tick for tick, phase in marks if phase == _BACKWARD and tick >= start]
        self.temporary = grows_with_images(timeline) & (timeline.kind == KINDS.index("temporary"))
        self.by_birth = np.argsort(timeline.born, kind="stable")
        self.births = timeline.born[self.by_birth]
        self.worth = WORTH_IT * float(live.max(initial=0))
        self.seconds = speed.seconds(timeline.work)
        self.in_backward = np.flatnonzero(timeline.phase == _BACKWARD)
        self.owners = timeline.owner[self.in_backward]

    def candidate(self, path: str, calls: list[ModuleCall], chunk: int, scale: float = 1.0) -> Candidate | None:
        if sum(self._saved(call) for call in calls) < self.worth:
            return None
        effect, seconds = np.zeros(self.length + 1, dtype=np.int64), 0.0
        inner = f"{path}."
        owners = [name == path or name.startswith(inner) for name in self.timeline.owners]
        own = self.in_backward[np.array(owners, dtype=bool)[self.owners]]
        for call in calls:
            seconds += self._add(effect, call, chunk / (call.images * scale) if chunk else 1.0, own)
        effect = np.cumsum(effect)[: self.length]
        return Candidate(path, chunk, seconds, effect) if -effect.min(initial=0) >= self.worth else None

    def _saved(self, call: ModuleCall) -> int:
        """Bytes that live from the call into backward, its results among them."""
        later = self._backward_after(call)
        if later is None:
            return 0
        rows = self._born_in(call)
        return int(self.timeline.bytes[rows[self.timeline.died[rows] > later]].sum())

    def _backward_after(self, call: ModuleCall) -> int | None:
        """The tick at which the backward that follows the call begins."""
        return next((tick for tick in self.backwards if tick >= call.leave), None)

    def _born_in(self, call: ModuleCall) -> Ints:
        """Rows of the blocks that are made while a module runs."""
        first, last = np.searchsorted(self.births, [call.enter, call.leave])
        return self.by_birth[first:last]

    def _hold(self, effect: Ints, first: Ints | int, last: Ints | int, size: Ints | int) -> None:
        """``size`` bytes in ticks [first, last)."""
        if isinstance(first, int) and isinstance(last, int):
            effect[min(max(first - self.start, 0), self.length)] += size
            effect[min(max(last - self.start, 0), self.length)] -= size
            return
        at = np.minimum(np.maximum(np.asarray(first) - self.start, 0), self.length)
        to = np.minimum(np.maximum(np.asarray(last) - self.start, 0), self.length)
        np.add.at(effect, at, size)
        np.subtract.at(effect, to, size)

    def _add(self, effect: Ints, call: ModuleCall, part: float, own: Ints) -> float:
        """Writes one call's effect as differences; returns the seconds that it costs. ``part`` of the images are taken
        at a time; ``own`` are rows of the blocks that the module makes in backward."""
        step, start = self.timeline, self.start
        later = self._backward_after(call)
        if later is None:
            return 0.0
        rows = self._born_in(call)
        rows = rows[step.died[rows] > later]
        saved = np.sort(rows[~np.isin(rows, call.outputs)])
        born, died, sizes = step.born[saved], step.died[saved], step.bytes[saved]
        stops = call.leave if call.saves_output else int(born.max(initial=call.enter)) + 1
        done = (step.work.tick >= call.enter) & (step.work.tick <= stops)
        if not len(saved):
            return self._seconds(done, part)
        first, ends = int(died.min()), int(died.max())
        own_born = step.born[own]
        # The module's backward begins with the first block it makes, before the first of what it saved is done with.
        begins = int(own_born[(own_born > later) & (own_born < first)].min(initial=first))
        at_start = int(self.live[max(0, call.enter - 1 - start)])
        forward = int(self.live[call.enter - start : stops - start].max(initial=at_start)) - at_start
        outputs = int(step.bytes[list(call.outputs)].sum())
        total, largest = int(sizes.sum()), int(sizes.max())
        # What is saved is gone from its birth until its module's backward; while the module runs, two of its
        # blocks are at hand.
        self._hold(effect, born, np.full(len(saved), begins), -sizes)
        joins = int(part < 1)  # the last tick: by then no part runs any more
        self._hold(effect, call.enter, call.leave - joins, min(total, int(2 * largest * part)))
        inputs = [row for row in call.inputs if step.died[row] < ends]
        self._hold(effect, step.died[inputs], np.full(len(inputs), ends), step.bytes[inputs])
        if part < 1:
            self._hold(effect, call.leave - 1, call.leave, outputs)  # parts are joined
            self._hold(effect, np.full(len(saved), begins), died, -sizes)
            self._hold(effect, begins, ends, int(forward * part))
            spare = own[self.temporary[own] & (own_born >= begins) & (own_born < ends)]
            # What goes on to the module before is gathered part by part, and then joined.
            on = self._going_on(spare[step.died[spare] > ends], call)
            for row in on:
                self._hold(effect, begins, int(step.born[row]), int(step.bytes[row]))
                self._hold(effect, ends, ends + 1, int(step.bytes[row]))
            spare = spare[~np.isin(spare, on)]
            less = np.rint(step.bytes[spare] * (1 - part)).astype(np.int64)
            self._hold(effect, step.born[spare], step.died[spare], -less)
            # What came from the module after stays until the last part is done.
            came = (step.born > later) & (step.born < begins) & (step.died > begins) & (step.died < ends)
            came &= np.isin(step.bytes, step.bytes[list(call.outputs)])
            self._hold(effect, step.died[came], np.full(came.sum(), ends), step.bytes[came])
        else:
            again = outputs if call.saves_output else 0
            self._hold(effect, begins - 1, begins + 1, max(0, forward - total) + again)
        return self._seconds(done, part)

    def _going_on(self, rows: Ints, call: ModuleCall) -> list[int]:
        """The gradients of the module's inputs: of the blocks that outlive its backward, the last of each size."""
        last = {int(self.timeline.bytes[row]): int(row) for row in rows}
        sizes = {int(size) for size in self.timeline.bytes[list(call.inputs)]}
        return [row for size, row in last.items() if size in sizes]

    def _seconds(self, done: NDArray[np.bool_], part: float) -> float:
        """The forward once more; in chunks, every one of three passes has that many more launches."""
        whole = float(self.seconds[done].sum())
        if part == 1:
            return whole
        chunked = self.speed.total(self.timeline.work.where(done).scaled(part)) / part
        return chunked + 3 * max(0.0, chunked - whole)
