"""Memory against time: the points of the frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oomproof.memory.forecast import Forecast
from oomproof.plan.confirmed import Confirmed
from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.way import Way
from oomproof.plan.plan import Point
from oomproof.plan.remarks.figures import Figures
from oomproof.plan.turned_knobs import NO_CHANGE
from oomproof.sources.job import PROMISES

BUDGETS = 6
"""for which points are worked out"""
AS_IT_IS = "as it is"
ALIKE = 0.01
"""two times or two sizes this close are one point"""


def find_points(
    estimates: Estimates, figures: Figures, looked_at: Sequence[Way], before: Forecast, chosen: Confirmed
) -> tuple[Point, ...]:
    """The least time for budgets from what the thriftiest way needs to what the job as it is needs."""
    steps = _steps(estimates, looked_at, chosen)
    most = max(estimates.as_it_is().peak, chosen.peak)
    least = min(estimates.thriftiest(step).peak for step in steps)
    rooms = [int(least * (most / least) ** (each / (BUDGETS - 1))) for each in range(BUDGETS)] if least < most else []
    starts = [(step, batch) for step in steps for batch in estimates.batches(step, steps)]
    found = filter(None, (estimates.ways.roughly(starts, int(room * 1.001)) for room in rooms))
    points = [Point(*figures.find(way), way.promise, way.words) for way in found]
    here = Point(
        chosen.forecast.on_device.high,
        estimates.time(chosen.seconds),
        chosen.way.promise,
        chosen.words,
        chosen=True,
    )
    as_it_is = Point(before.on_device.high, 1.0, PROMISES[0], AS_IT_IS)
    return leave_out_beaten([here, as_it_is, *(point for point in points if point.changes != NO_CHANGE)])


def _steps(estimates: Estimates, looked_at: Sequence[Way], chosen: Confirmed) -> list[TracedStep]:
    """Where the frontier is drawn: the job as it is, and with the knobs that the chosen way has traced for."""
    others = {id(way.step): way.step for way in looked_at if way.step.turned}
    return [*estimates.base, *(each for each in others.values() if each.turned == chosen.way.step.turned)][:3]


def leave_out_beaten(points: list[Point]) -> tuple[Point, ...]:
    """The chosen point, which comes first and was traced; and of the estimated ones those that cost less time for more
    memory, or need less memory for more time."""
    chosen, *others = points
    kept = [chosen]
    least = math.inf
    for point in sorted(others, key=lambda each: (each.device, each.time)):
        smaller, quicker = point.device < chosen.device, point.time < chosen.time
        alike = _alike(point.device, chosen.device) and _alike(point.time, chosen.time)
        if smaller != quicker and not alike and point.time < least * (1 - ALIKE):
            kept.append(point)
            least = point.time
    return tuple(sorted(kept, key=lambda each: each.device))


def _alike(one: float, other: float) -> bool:
    return abs(one / other - 1) < ALIKE
