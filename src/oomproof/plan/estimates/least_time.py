"""Which modules to compute again in backward: the least time for the bytes that are needed.

A mixed-integer programme takes the set that costs the least time and keeps every tick below the budget.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.timeline import Ints
from oomproof.plan.estimates.recomputable import Recomputable, RecomputedModules, hills, least_sums

MOST_ROUNDS = 12
TOLERANCE = 1e-6
"""part of the peak by which the solver may break a bound"""
NODES, SECONDS = 200, 60.0
"""of one programme; its best answer so far is taken then. Most need one node. Time is the last resort, since answers
would depend on how busy the machine is"""


def cheapest(step: Recomputable, budget: int) -> RecomputedModules | None:
    """The set that costs the least time and stays within ``budget`` bytes; None where no set does."""
    if step.peak <= budget:
        return RecomputedModules((), 0.0, step.peak)
    if not step.candidates or step.floor > budget:
        return None
    if budget not in step.answers:
        step.answers[budget] = _solve(step, budget)
    return step.answers[budget]


def smallest(step: Recomputable) -> RecomputedModules:
    """The set that needs the least memory, whatever it costs."""
    return _solve(step, None) or RecomputedModules((), 0.0, step.peak)


def least_seconds(step: Recomputable, budget: int) -> float:
    """Seconds that no set within the budget stays below, at a fraction of the time that the programme takes.

    Looks at the highest tick alone. There every byte too much is given a price: a set pays for those that it leaves,
    and is paid for those that it saves beyond. What the best set then comes to is a bound, whatever the price
    (Lagrangian relaxation); the highest bound is taken.
    """
    highest = int(step.live.argmax())
    missing = int(step.live[highest]) - budget
    if missing <= 0:
        return 0.0
    if not step.candidates:
        return math.inf
    saves, seconds = -step.effects[:, highest], step.seconds
    prices = np.unique(seconds[saves > 0] / saves[saves > 0])
    if not len(prices):
        return math.inf
    left = least_sums(step, seconds[:, None] - saves[:, None] * prices)
    return max(0.0, float((missing * prices + left).max()) * (1 - 1e-9))


def _solve(step: Recomputable, budget: int | None) -> RecomputedModules | None:
    """Ticks become constraints when an answer breaks them: of thousands a few dozen matter."""
    count = len(step.candidates)
    if not count:
        return None
    effects, seconds = step.effects, step.seconds
    watched = hills(step.live) if budget is None else step.watched
    chosen = np.zeros(count, dtype=bool)
    for _ in range(MOST_ROUNDS):
        answer = _programme(step, effects[:, watched], step.live[watched], seconds, budget)
        if answer is None:
            return None
        chosen = answer
        live = step.after(chosen)
        worst = int(live.argmax())
        if (budget is not None and live[worst] <= budget) or worst in watched:
            break
        watched += [tick for tick in hills(live, 24) if tick not in watched]
    peak = int(step.after(chosen).max())
    if budget is not None and peak > budget:
        return None
    names = tuple(step.candidates[place].name for place in np.flatnonzero(chosen))
    return RecomputedModules(names, float(seconds[chosen].sum()), peak)


def _programme(
    step: Recomputable, effects: Ints, live: Ints, seconds: NDArray[np.float64], budget: int | None
) -> NDArray[np.bool_] | None:
    """Least seconds within a budget; or, without one, the least peak (and of equal peaks the least seconds)."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # takes a while to load, which `check` has no need of
    from scipy.sparse import csc_matrix

    count = len(step.candidates)
    scale = float(max(1, step.peak))
    exclusive = step.exclusive
    bound: NDArray[np.floating[Any]]
    if budget is None:
        costs = np.append(seconds / max(seconds.sum(), 1e-9) * 1e-3, 1.0)
        ticks = np.column_stack([effects.T / scale, -np.ones(len(live))])
        bound = -live / scale
        exclusive = np.column_stack([exclusive, np.zeros(len(exclusive))])
    else:
        # Of equal times the fewer modules, and the larger chunks.
        chunked = np.array([1 / each.chunk if each.chunk else 0.0 for each in step.candidates])
        costs = seconds / max(seconds.sum(), 1e-9) + 1e-5 * (1 + chunked)
        # HiGHS lets bounds be broken by up to 1e-6; the answer must not break the budget by a single byte.
        ticks, bound = effects.T / scale, (budget + 0.4 - live) / scale - TOLERANCE
    limits = [LinearConstraint(csc_matrix(ticks), ub=bound)]
    if len(exclusive):
        limits.append(LinearConstraint(csc_matrix(exclusive), ub=np.ones(len(exclusive))))
    variables = len(costs)
    with _stdout_silenced():
        result = milp(
            costs,
            integrality=np.append(np.ones(count), np.zeros(variables - count)),
            bounds=Bounds(np.zeros(variables), np.append(np.ones(count), np.full(variables - count, np.inf))),
            constraints=limits,
            options={"node_limit": NODES, "time_limit": SECONDS, "mip_rel_gap": 0.01},
        )
    return None if result.x is None else result.x[:count] > 0.5


@contextmanager
def _stdout_silenced() -> Iterator[None]:
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
