"""Modules that could be computed again, and what choosing one would do to live memory at every tick of a traced step:
what it saves for backward is gone in between, comes back for its own backward, and its inputs stay."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.activity import ModuleCall
from oomproof.memory.timeline import KINDS, PHASES, Ints, Timeline
from oomproof.plan.estimates.roofline import Speed
from oomproof.plan.estimates.what_if import grows_with_images

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


class StepView:
    """The step's columns, cut out once. Calls of modules go by their places in ``timeline.modules``."""

    def __init__(self, timeline: Timeline, speed: Speed, start: int, live: Ints) -> None:
        self.timeline, self.speed, self.start, self.live = timeline, speed, start, live
        self.length = len(live)
        self.worth = WORTH_IT * float(live.max(initial=0))
        self.temporary = grows_with_images(timeline) & (timeline.kind == KINDS.index("temporary"))
        self.by_birth = np.argsort(timeline.born, kind="stable")
        self.births = timeline.born[self.by_birth]
        self.by_tick = np.argsort(timeline.work.tick, kind="stable")
        self.work_ticks = timeline.work.tick[self.by_tick]
        self._seconds_at: dict[float, NDArray[np.float64]] = {}
        self.in_backward = np.flatnonzero(timeline.phase == _BACKWARD)
        # Sorted by name, the owners inside of a module come one after another.
        self.names = sorted(set(timeline.owners))
        rank = {name: place for place, name in enumerate(self.names)}
        ranks = np.array([rank[name] for name in timeline.owners], dtype=np.int64)
        self.owners = ranks[timeline.owner[self.in_backward]]
        self._marked = np.zeros(len(timeline), dtype=bool)
        enter = np.array([call.enter for call in timeline.modules], dtype=np.int64)
        leave = np.array([call.leave for call in timeline.modules], dtype=np.int64)
        backwards = np.sort(timeline.mark_tick[(timeline.mark_phase == _BACKWARD) & (timeline.mark_tick >= start)])
        self.later = np.append(backwards, timeline.ticks)[backwards.searchsorted(leave)]
        """for each call the tick at which the backward that follows it begins; the end of the step where none does"""
        self.first, self.last = self.births.searchsorted(enter), self.births.searchsorted(leave)
        """for each call, where the blocks that are made in it begin and end, in the order of births"""
        self.saved = self._find_saved_bytes(enter, leave)

    def candidate(self, path: str, calls: Sequence[int], chunk: int = 0, scale: float = 1.0) -> Candidate | None:
        if sum(self.saved[place] for place in calls) < self.worth:
            return None
        effect, seconds = np.zeros(self.length + 1, dtype=np.int64), 0.0
        own = self._find_made_in_backward(path)
        for place in calls:
            images = self.timeline.modules[place].images * scale
            seconds += self._add(effect, place, chunk / images if chunk else 1.0, own)
        effect = np.cumsum(effect)[: self.length]
        return Candidate(path, chunk, seconds, effect) if -effect.min(initial=0) >= self.worth else None

    def _find_saved_bytes(self, enter: Ints, leave: Ints) -> list[int]:
        """Bytes that live from each call into backward, its results apart: computing it again saves no more."""
        step, saved = self.timeline, np.zeros(len(enter), dtype=np.int64)
        for tick in np.unique(self.later):
            kept = np.append(0, np.cumsum(np.where(step.died > tick, step.bytes, 0)[self.by_birth]))
            saved += np.where(self.later == tick, kept[self.last] - kept[self.first], 0)
        results = [(place, row) for place, call in enumerate(step.modules) for row in set(call.outputs)]
        place, row = np.array(results, dtype=np.int64).reshape(-1, 2).T
        made = (step.born[row] >= enter[place]) & (step.born[row] < leave[place]) & (step.died[row] > self.later[place])
        np.subtract.at(saved, place, np.where(made, step.bytes[row], 0))
        return list(saved.tolist())

    def _find_made_in_backward(self, path: str) -> Ints:
        """Rows of the blocks that a module, or one inside of it, makes in backward."""
        first, last = bisect_left(self.names, f"{path}."), bisect_left(self.names, f"{path}/")  # "/" follows "."
        own = (self.owners >= first) & (self.owners < last)
        place = bisect_left(self.names, path)
        if place < len(self.names) and self.names[place] == path:
            own |= self.owners == place
        return self.in_backward[own]

    def _without(self, rows: Ints, others: Sequence[int]) -> Ints:
        """``rows`` apart from ``others``."""
        left_out = list(others)
        self._marked[left_out] = True
        kept: Ints = rows[~self._marked[rows]]
        self._marked[left_out] = False
        return kept

    def _hold(self, effect: Ints, first: Ints | int, last: Ints | int, size: Ints | int) -> None:
        """``size`` bytes in ticks [first, last)."""
        self._change(effect, first, size)
        self._change(effect, last, -size)

    def _change(self, effect: Ints, tick: Ints | int, size: Ints | int) -> None:
        if isinstance(tick, int):
            effect[min(max(tick - self.start, 0), self.length)] += size if isinstance(size, int) else size.sum()
        else:
            np.add.at(effect, np.minimum(np.maximum(tick - self.start, 0), self.length), size)

    def _add(self, effect: Ints, place: int, part: float, own: Ints) -> float:
        """Writes one call's effect as differences; returns the seconds that it costs. ``part`` of the images are taken
        at a time; ``own`` are rows of the blocks that the module makes in backward."""
        step, start, call, later = self.timeline, self.start, self.timeline.modules[place], int(self.later[place])
        if later == step.ticks:
            return 0.0
        rows = self.by_birth[self.first[place] : self.last[place]]
        saved = self._without(rows[step.died[rows] > later], call.outputs)
        born, died, sizes = step.born[saved], step.died[saved], step.bytes[saved]
        stops = call.leave if call.saves_output else int(born.max(initial=call.enter)) + 1
        seconds = self._seconds(call.enter, stops, part)
        if not len(saved):
            return seconds
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
        self._hold(effect, born, begins, -sizes)
        joins = int(part < 1)  # the last tick: by then no part runs any more
        self._hold(effect, call.enter, call.leave - joins, min(total, int(2 * largest * part)))
        inputs = [row for row in call.inputs if step.died[row] < ends]
        if inputs:
            self._hold(effect, step.died[inputs], ends, step.bytes[inputs])
        if part < 1:
            self._hold(effect, call.leave - 1, call.leave, outputs)  # parts are joined
            self._hold(effect, begins, died, -sizes)
            self._hold(effect, begins, ends, int(forward * part))
            spare = own[self.temporary[own] & (own_born >= begins) & (own_born < ends)]
            # What goes on to the module before is gathered part by part, and then joined.
            on = self._find_passed_gradients(spare[step.died[spare] > ends], call)
            for row in on:
                self._hold(effect, begins, int(step.born[row]), int(step.bytes[row]))
                self._hold(effect, ends, ends + 1, int(step.bytes[row]))
            spare = self._without(spare, on)
            less = np.rint(step.bytes[spare] * (1 - part)).astype(np.int64)
            self._hold(effect, step.born[spare], step.died[spare], -less)
            # What came from the module after stays until the last part is done.
            came = self.by_birth[slice(*self.births.searchsorted((later + 1, begins)))]
            came = came[(step.died[came] > begins) & (step.died[came] < ends)]
            came = came[np.isin(step.bytes[came], step.bytes[list(call.outputs)])]
            self._hold(effect, step.died[came], ends, step.bytes[came])
        else:
            again = outputs if call.saves_output else 0
            self._hold(effect, begins - 1, begins + 1, max(0, forward - total) + again)
        return seconds

    def _find_passed_gradients(self, rows: Ints, call: ModuleCall) -> list[int]:
        """The gradients of the module's inputs: of the blocks that outlive its backward, the last of each size."""
        last = {int(self.timeline.bytes[row]): int(row) for row in rows}
        sizes = {int(size) for size in self.timeline.bytes[list(call.inputs)]}
        return [row for size, row in last.items() if size in sizes]

    def _seconds(self, enter: int, stops: int, part: float) -> float:
        """The forward once more; in chunks, every one of three passes has that many more launches."""
        first, last = self.work_ticks.searchsorted((enter, stops + 1))
        whole = float(self._seconds_of(1.0)[first:last].sum())
        if part == 1:
            return whole
        chunked = float(self._seconds_of(part)[first:last].sum()) / part
        return chunked + 3 * max(0.0, chunked - whole)

    def _seconds_of(self, part: float) -> NDArray[np.float64]:
        """Of every operation, in the order of their ticks, on a part of the images."""
        if part not in self._seconds_at:
            work = self.timeline.work
            self._seconds_at[part] = self.speed.seconds(work if part == 1 else work.scale(part))[self.by_tick]
        return self._seconds_at[part]
