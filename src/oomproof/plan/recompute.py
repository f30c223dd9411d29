"""Which modules to compute again in backward: the least time for the bytes that are needed.

Every module that can be computed again is a candidate, whole or a few images at a time. What choosing it would do to
live memory at every tick follows from the traced step: what it saves for backward is gone in between, comes back for
its own backward, and its inputs stay. A mixed-integer programme then takes the set that costs the least time and keeps
every tick below the budget.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_matrix

from oomproof.memory.activity import ModuleCall, Work
from oomproof.memory.timeline import KINDS, PHASES, Ints, Timeline
from oomproof.plan.cost import Speed
from oomproof.plan.what_if import grows_with_images, step_start

WORTH_IT = 0.003
"""part of the peak that a module must save to be looked at"""
MOST_CANDIDATES, MOST_CHUNKED = 64, 12
"""modules that are looked at, and those of them also a few images at a time: the ones that save the most"""
MOST_ROUNDS = 12
TOLERANCE = 1e-6
"""part of the peak by which the solver may break a bound"""
NODES, SECONDS = 200, 60.0
"""of one programme; its best answer so far is taken then. Most need one node. Time is the last resort, since answers
would depend on how busy the machine is"""
_PER_BOX = "roi_heads."
"""torchvision's heads that see boxes, not images, in dimension 0: these too are treated one by one"""
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


@dataclass(frozen=True)
class Choice:
    """``modules`` as the setting ``checkpoint`` has them; ``peak`` is the live memory that is left."""

    modules: tuple[str, ...]
    seconds: float
    peak: int

    @property
    def setting(self) -> str:
        return ",".join(self.modules) or "none"


@dataclass(frozen=True)
class Question:
    """A step as the programme sees it: live bytes at every tick, and what each candidate would do to them."""

    live: Ints
    candidates: tuple[Candidate, ...]

    @property
    def peak(self) -> int:
        return int(self.live.max(initial=0))

    def after(self, chosen: NDArray[np.bool_]) -> Ints:
        live = self.live.copy()
        for place in np.flatnonzero(chosen):
            live += self.candidates[place].effect
        return live


def ask(
    timeline: Timeline,
    speed: Speed,
    images: int,
    *,
    scale: float = 1.0,
    without: Iterable[str] = (),
) -> Question:
    """What could be computed again in a step that was traced with ``images`` images and is scaled to ``scale`` times as
    many; ``without`` names modules that are no candidates."""
    start = step_start(timeline)
    live = timeline.curve()[start:]
    view = _View(timeline, speed, start, live)
    found: dict[str, list[ModuleCall]] = defaultdict(list)
    for call in timeline.modules:
        found[call.path].append(call)
    whole_model = str(timeline.about.get("model", ""))  # all of it again would save nothing
    for path in (whole_model, *without):
        found.pop(path, None)
    whole = {path: view.candidate(path, calls, 0) for path, calls in found.items() if _may(calls)}
    ranked = sorted((each for each in whole.values() if each is not None), key=lambda each: int(each.effect.min()))
    candidates = ranked[:MOST_CANDIDATES]
    for each in candidates[:MOST_CHUNKED]:
        calls = found[each.path]
        if all(call.separable and (call.images == images or _PER_BOX in call.path) for call in calls):
            rows = round(min(call.images for call in calls) * scale)
            candidates += [part for size in _sizes(rows) if (part := view.candidate(each.path, calls, size, scale))]
    return Question(live, tuple(candidates))


def cheapest(question: Question, budget: int) -> Choice | None:
    """The set that costs the least time and stays within ``budget`` bytes; None where no set does."""
    if question.peak <= budget:
        return Choice((), 0.0, question.peak)
    return _solved(question, budget)


def smallest(question: Question) -> Choice:
    """The set that needs the least memory, whatever it costs."""
    return _solved(question, None) or Choice((), 0.0, question.peak)


def _may(calls: list[ModuleCall]) -> bool:
    return all(call.repeatable and call.leave > call.enter for call in calls) and "(" not in calls[0].path


def _sizes(rows: int) -> list[int]:
    """A half, a quarter ... of the rows, down to a single one where there are few."""
    return list(dict.fromkeys(-(-rows // parts) for parts in (2, 4, 8, 16) if parts <= rows))


class _View:
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

    def candidate(self, path: str, calls: list[ModuleCall], chunk: int, scale: float = 1.0) -> Candidate | None:
        if sum(self._saved(call) for call in calls) < self.worth:
            return None
        effect, seconds = np.zeros(self.length + 1, dtype=np.int64), 0.0
        owners = np.array([name == path or name.startswith(f"{path}.") for name in self.timeline.owners], dtype=bool)
        own = owners[self.timeline.owner] & (self.timeline.phase == _BACKWARD)
        for call in calls:
            seconds += self._add(effect, call, chunk / (call.images * scale) if chunk else 1.0, own)
        effect = np.cumsum(effect)[: self.length]
        return Candidate(path, chunk, seconds, effect) if -effect.min(initial=0) >= self.worth else None

    def _saved(self, call: ModuleCall) -> int:
        """Bytes that live from the call into backward, its results among them."""
        first, last = np.searchsorted(self.births, [call.enter, call.leave])
        later = [tick for tick in self.backwards if tick >= call.leave]
        if not later:
            return 0
        rows = self.by_birth[first:last]
        return int(self.timeline.bytes[rows[self.timeline.died[rows] > later[0]]].sum())

    def _add(self, effect: Ints, call: ModuleCall, part: float, own: NDArray[np.bool_]) -> float:
        """Writes one call's effect as differences; returns the seconds that it costs. ``part`` of the images are taken
        at a time; ``own`` are the blocks that the module makes in backward."""
        step, start = self.timeline, self.start
        later = [tick for tick in self.backwards if tick >= call.leave]
        if not later:
            return 0.0
        inside = (step.born >= call.enter) & (step.born < call.leave)
        saved = inside & (step.died > later[0])
        saved[list(call.outputs)] = False
        stops = call.leave if call.saves_output else int(step.born[saved].max(initial=call.enter)) + 1
        work = step.work.where((step.work.tick >= call.enter) & (step.work.tick <= stops))
        if not saved.any():
            return self._seconds(work, part)
        first, ends = int(step.died[saved].min()), int(step.died[saved].max())
        # The module's backward begins with the first block it makes, before the first of what it saved is done with.
        before = step.born[own & (step.born > later[0]) & (step.born < first)]
        begins = int(before.min(initial=first)) if len(before) else first
        at_start = int(self.live[max(0, call.enter - 1 - start)])
        forward = int(self.live[call.enter - start : stops - start].max(initial=at_start)) - at_start
        outputs = int(step.bytes[list(call.outputs)].sum())
        total, largest = int(step.bytes[saved].sum()), int(step.bytes[saved].max())

        def hold(first: Ints | int, last: Ints | int, size: Ints | int) -> None:
            """``size`` bytes in ticks [first, last)."""
            np.add.at(effect, np.clip(np.asarray(first) - start, 0, self.length), size)
            np.add.at(effect, np.clip(np.asarray(last) - start, 0, self.length), -np.asarray(size))

        # What is saved is gone from its birth until its module's backward; while the module runs, two of its
        # blocks are at hand.
        hold(step.born[saved], np.full(saved.sum(), begins), -step.bytes[saved])
        joins = int(part < 1)  # the last tick: by then no part runs any more
        hold(call.enter, call.leave - joins, min(total, int(2 * largest * part)))
        inputs = [row for row in call.inputs if step.died[row] < ends]
        hold(step.died[inputs], np.full(len(inputs), ends), step.bytes[inputs])
        if part < 1:
            hold(call.leave - 1, call.leave, outputs)  # parts are joined
            hold(np.full(saved.sum(), begins), step.died[saved], -step.bytes[saved])
            hold(begins, ends, int(forward * part))
            spare = self.temporary & own & (step.born >= begins) & (step.born < ends)
            # What goes on to the module before is gathered part by part, and then joined.
            for row in self._going_on(spare & (step.died > ends), call):
                hold(begins, int(step.born[row]), int(step.bytes[row]))
                hold(ends, ends + 1, int(step.bytes[row]))
                spare[row] = False
            hold(step.born[spare], step.died[spare], -np.rint(step.bytes[spare] * (1 - part)).astype(np.int64))
            # What came from the module after stays until the last part is done.
            came = (step.born > later[0]) & (step.born < begins) & (step.died > begins) & (step.died < ends)
            came &= np.isin(step.bytes, step.bytes[list(call.outputs)])
            hold(step.died[came], np.full(came.sum(), ends), step.bytes[came])
        else:
            again = outputs if call.saves_output else 0
            hold(begins - 1, begins + 1, max(0, forward - total) + again)
        return self._seconds(work, part)

    def _going_on(self, rows: NDArray[np.bool_], call: ModuleCall) -> list[int]:
        """The gradients of the module's inputs: of the blocks that outlive its backward, the last of each size."""
        last = {int(self.timeline.bytes[row]): int(row) for row in np.flatnonzero(rows)}
        sizes = {int(size) for size in self.timeline.bytes[list(call.inputs)]}
        return [row for size, row in last.items() if size in sizes]

    def _seconds(self, work: Work, part: float) -> float:
        """The forward once more; in chunks, every one of three passes has that many more launches."""
        whole = self.speed.total(work)
        chunked = self.speed.total(work.scaled(part)) / part
        return chunked + 3 * max(0.0, chunked - whole)


def _solved(question: Question, budget: int | None) -> Choice | None:
    """Ticks become constraints when an answer breaks them: of thousands a few dozen matter."""
    count = len(question.candidates)
    if not count:
        return None
    effects = np.stack([each.effect for each in question.candidates])
    seconds = np.array([each.seconds for each in question.candidates])
    watched = list(_hills(question.live))
    chosen = np.zeros(count, dtype=bool)
    for _ in range(MOST_ROUNDS):
        answer = _programme(question, effects[:, watched], question.live[watched], seconds, budget)
        if answer is None:
            return None
        chosen = answer
        live = question.after(chosen)
        worst = int(live.argmax())
        if (budget is not None and live[worst] <= budget) or worst in watched:
            break
        watched += [tick for tick in _hills(live, 24) if tick not in watched]
    peak = int(question.after(chosen).max())
    if budget is not None and peak > budget:
        return None
    names = tuple(question.candidates[place].name for place in np.flatnonzero(chosen))
    return Choice(names, float(seconds[chosen].sum()), peak)


def _hills(live: Ints, count: int = 48) -> list[int]:
    """The highest tick of each of ``count`` stretches."""
    edges = np.linspace(0, len(live), count + 1).astype(int)
    return [int(a + live[a:b].argmax()) for a, b in pairwise(edges) if b > a]


def _programme(
    question: Question, effects: Ints, live: Ints, seconds: NDArray[np.float64], budget: int | None
) -> NDArray[np.bool_] | None:
    """Least seconds within a budget; or, without one, the least peak (and of equal peaks the least seconds)."""
    count = len(question.candidates)
    scale = float(max(1, question.peak))
    exclusive = _exclusive(question)
    bound: NDArray[np.floating[Any]]
    if budget is None:
        costs = np.append(seconds / max(seconds.sum(), 1e-9) * 1e-3, 1.0)
        ticks = np.column_stack([effects.T / scale, -np.ones(len(live))])
        bound = -live / scale
        exclusive = np.column_stack([exclusive, np.zeros(len(exclusive))])
    else:
        # Of equal times the fewer modules, and the larger chunks.
        chunked = np.array([1 / each.chunk if each.chunk else 0.0 for each in question.candidates])
        costs = seconds / max(seconds.sum(), 1e-9) + 1e-5 * (1 + chunked)
        # HiGHS lets bounds be broken by up to 1e-6; the answer must not break the budget by a single byte.
        ticks, bound = effects.T / scale, (budget + 0.4 - live) / scale - TOLERANCE
    limits = [LinearConstraint(csc_matrix(ticks), ub=bound)]
    if len(exclusive):
        limits.append(LinearConstraint(csc_matrix(exclusive), ub=np.ones(len(exclusive))))
    variables = len(costs)
    with _unheard():
        result = milp(
            costs,
            integrality=np.append(np.ones(count), np.zeros(variables - count)),
            bounds=Bounds(np.zeros(variables), np.append(np.ones(count), np.full(variables - count, np.inf))),
            constraints=limits,
            options={"node_limit": NODES, "time_limit": SECONDS, "mip_rel_gap": 0.01},
        )
    return None if result.x is None else result.x[:count] > 0.5


@contextmanager
def _unheard() -> Iterator[None]:
    """HiGHS prints a line of its own to the process's stdout now and then (scipy 1.17), which is not ours to fill."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C still holds back would come out later
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _exclusive(question: Question) -> NDArray[np.float64]:
    """A module is not computed again both by itself and inside another: one row for every innermost module."""
    paths = [each.path for each in question.candidates]
    rows = {tuple(path == other or path.startswith(f"{other}.") for other in paths) for path in dict.fromkeys(paths)}
    return np.array([row for row in rows if sum(row) > 1], dtype=np.float64).reshape(-1, len(paths))
