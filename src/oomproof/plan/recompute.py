"""Which modules to compute again in backward: the least time for the bytes that are needed.

Every module that can be computed again is a candidate, whole or a few images at a time. What choosing it would do to
live memory at every tick follows from the traced step: what it saves for backward is gone in between, comes back for
its own backward, and its inputs stay. A mixed-integer programme then takes the set that costs the least time and keeps
every tick below the budget.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_matrix

from oomproof.memory.timeline import Ints, Timeline
from oomproof.plan.candidates import Candidate, View
from oomproof.plan.cost import Speed
from oomproof.plan.what_if import step_start

MOST_CANDIDATES, MOST_CHUNKED = 64, 12
"""modules that are looked at, and those of them also a few images at a time: the ones that save the most"""
MOST_ROUNDS = 12
TOLERANCE = 1e-6
"""part of the peak by which the solver may break a bound"""
NODES, SECONDS = 200, 60.0
"""of one programme; its best answer so far is taken then. Most need one node. Time is the last resort, since answers
would depend on how busy the machine is"""


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

    @cached_property
    def effects(self) -> Ints:
        """One row for each candidate."""
        return np.stack([each.effect for each in self.candidates])

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Of each candidate."""
        return np.array([each.seconds for each in self.candidates])

    @cached_property
    def by_path(self) -> dict[str, list[int]]:
        """Places of the candidates: a module as a whole, and in parts."""
        found: dict[str, list[int]] = defaultdict(list)
        for place, each in enumerate(self.candidates):
            found[each.path].append(place)
        return dict(found)

    @cached_property
    def floor(self) -> int:
        """Bytes that no set stays below: at every tick what the best set for that tick alone would leave."""
        return int((self.live + _least_sums(self, self.effects)).max(initial=0)) if self.candidates else self.peak

    @cached_property
    def exclusive(self) -> NDArray[np.float64]:
        """A module is not computed again both by itself and inside another: one row for every innermost module."""
        rows = set()
        for path in self.by_path:
            row = np.zeros(len(self.candidates), dtype=bool)
            row[[place for each in _around(path) for place in self.by_path.get(each, ())]] = True
            rows.add(tuple(row.tolist()))
        return np.array([row for row in rows if sum(row) > 1], dtype=np.float64).reshape(-1, len(self.candidates))

    @cached_property
    def watched(self) -> list[int]:
        """Ticks that are constraints, whatever the budget: what one answer breaks is watched for the next too."""
        return _hills(self.live)

    @cached_property
    def answers(self) -> dict[int, Choice | None]:
        """By budget: a search comes back to the same ones."""
        return {}

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
    view = View(timeline, speed, start, live)
    found: dict[str, list[int]] = defaultdict(list)
    for place, call in enumerate(timeline.modules):
        found[call.path].append(place)
    for path in (timeline.about.model, *without):  # all of it again would save nothing
        found.pop(path, None)
    whole = (view.candidate(path, places) for path, places in found.items() if _may(timeline, places))
    ranked = sorted((each for each in whole if each is not None), key=lambda each: int(each.effect.min()))
    candidates = ranked[:MOST_CANDIDATES]
    for each in candidates[:MOST_CHUNKED]:
        places = found[each.path]
        calls = [timeline.modules[place] for place in places]
        per_box = each.path in timeline.about.per_box  # sees boxes, not images: these too are treated one by one
        if all(call.separable and (call.images == images or per_box) for call in calls):
            rows = round(min(call.images for call in calls) * scale)
            candidates += [part for size in _sizes(rows) if (part := view.candidate(each.path, places, size, scale))]
    return Question(live, tuple(candidates))


def cheapest(question: Question, budget: int) -> Choice | None:
    """The set that costs the least time and stays within ``budget`` bytes; None where no set does."""
    if question.peak <= budget:
        return Choice((), 0.0, question.peak)
    if not question.candidates or question.floor > budget:
        return None
    if budget not in question.answers:
        question.answers[budget] = _solved(question, budget)
    return question.answers[budget]


def smallest(question: Question) -> Choice:
    """The set that needs the least memory, whatever it costs."""
    return _solved(question, None) or Choice((), 0.0, question.peak)


def at_least(question: Question, budget: int) -> float:
    """Seconds that no set within the budget stays below, at a fraction of the time that the programme takes.

    Looks at the highest tick alone. There every byte too much is given a price: a set pays for those that it leaves,
    and is paid for those that it saves beyond. What the best set then comes to is a bound, whatever the price
    (Lagrangian relaxation); the highest bound is taken.
    """
    highest = int(question.live.argmax())
    missing = int(question.live[highest]) - budget
    if missing <= 0:
        return 0.0
    if not question.candidates:
        return math.inf
    saves, seconds = -question.effects[:, highest], question.seconds
    prices = np.unique(seconds[saves > 0] / saves[saves > 0])
    if not len(prices):
        return math.inf
    left = _least_sums(question, seconds[:, None] - saves[:, None] * prices)
    return max(0.0, float((missing * prices + left).max()) * (1 - 1e-9))


def _least_sums(question: Question, values: NDArray[Any]) -> NDArray[Any]:
    """The least that the ``values`` of a set add up to, in each column by itself; there is one row for a candidate. A
    module is computed again as a whole or in parts, or what is inside it module by module, or not at all."""
    nothing = np.zeros_like(values[0])
    inside: dict[str, NDArray[Any]] = {}
    """by module, what its inner modules come to"""
    total: NDArray[Any] = nothing
    # From the end of the alphabet, so that inner modules come before those they are in.
    for path in sorted(question.by_path, reverse=True):
        best = np.minimum.reduce([inside.get(path, nothing), *values[question.by_path[path]]])
        outer = next((each for each in _around(path) if each != path and each in question.by_path), None)
        if outer is None:
            total = total + best
        else:
            inside[outer] = inside.get(outer, nothing) + best
    return total


def _around(path: str) -> Iterator[str]:
    """A module and those it is in, from the innermost."""
    yield path
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _may(timeline: Timeline, places: list[int]) -> bool:
    calls = [timeline.modules[place] for place in places]
    return all(call.repeatable and call.leave > call.enter for call in calls) and "(" not in calls[0].path


def _sizes(rows: int) -> list[int]:
    """A half, a quarter ... of the rows, down to a single one where there are few."""
    return list(dict.fromkeys(-(-rows // parts) for parts in (2, 4, 8, 16) if parts <= rows))


def _solved(question: Question, budget: int | None) -> Choice | None:
    """Ticks become constraints when an answer breaks them: of thousands a few dozen matter."""
    count = len(question.candidates)
    if not count:
        return None
    effects, seconds = question.effects, question.seconds
    watched = _hills(question.live) if budget is None else question.watched
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
    exclusive = question.exclusive
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
