"""What is told beside the settings: each change with its share, what was turned down and why, memory against time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from oomproof.memory.forecast import Forecast
from oomproof.plan.plan import Alternative, Change, Point
from oomproof.plan.search import Confirmed, Search
from oomproof.plan.ways import Structure, Turned, Way, promise_of
from oomproof.plan.wording import NO_CHANGE, described
from oomproof.sources.job import PROMISES

MOST_ALTERNATIVES = 6
STEPS = 6
"""budgets for which the frontier is worked out"""
AS_IT_IS = "as it is"
ALIKE = 0.01
"""two times or two sizes this close are one point"""


def changes(search: Search, base: Sequence[Structure], before: Forecast, chosen: Confirmed) -> tuple[Change, ...]:
    """The turned knobs, cheapest harm first, each with its share of the bytes and of the time."""
    order = sorted(
        chosen.way.turned, key=lambda each: (PROMISES.index(promise_of(*each)), each[1].harm, search.rank(each[0]))
    )
    path: list[Way] = [search.estimate(base, ())]
    for count in range(1, len(order) + 1):
        path.append(search.estimate(base, tuple(order[:count])))
    found = [
        _change(each, now.peak - then.peak, then.seconds / now.seconds)
        for each, now, then in zip(order, path[:-1], path[1:], strict=True)
    ]
    if chosen.way.choice.modules:
        knob, again = search.by_name["checkpoint"], path[-1]
        found.insert(
            sum(change.promise == PROMISES[0] for change in found),
            Change(
                "checkpoint",
                knob.options[0].value,
                chosen.way.choice.setting,
                knob.promise,
                knob.why,
                again.peak - chosen.peak,
                chosen.way.seconds / again.seconds,
                {"checkpoint": chosen.way.choice.setting},
            ),
        )
    run = zip(chosen.run, chosen.run_frees, strict=True)
    found = [*(_change(each, frees, 1.0) for each, frees in run), *found]
    return _in_proportion(found, before.on_device.expected - chosen.forecast.on_device.expected)


def _change(turned: Turned, frees: int, time: float) -> Change:
    knob, option = turned
    why = f"{knob.why}; {option.note}" if option.note else knob.why
    before = knob.options[0].value
    return Change(knob.name, before, option.value, promise_of(knob, option), why, frees, time, option.settings)


def _in_proportion(found: list[Change], freed: int) -> tuple[Change, ...]:
    """Estimated shares, brought to add up to what the two forecasts differ by."""
    shares = [max(0, change.frees) for change in found]
    if not any(shares):  # no estimate shows what the traces do
        shares = [1] * len(found)
    ends = [max(0, freed) * part // sum(shares) for part in itertools.accumulate(shares)]
    return tuple(
        replace(change, frees=end - start) for change, start, end in zip(found, [0, *ends], ends, strict=False)
    )


def alternatives(search: Search, base: Sequence[Structure], chosen: Way) -> tuple[Alternative, ...]:
    """The ways people take by habit, and the best of each other kind that was looked at."""
    found: dict[str, Alternative] = {}
    for way in (*_habits(search, base), *_best_of_kinds(search.looked_at)):
        words = described(way.turned, way)
        same = way.turned == chosen.turned and bool(way.choice.modules) == bool(chosen.choice.modules)
        if words == NO_CHANGE or same or words in found:
            continue
        reason = _reason(search, way, chosen)
        device = search.on_device(way.peak)
        found[words] = Alternative(words, way.promise, device, way.seconds / search.seconds_before, reason)
    return tuple(list(found.values())[:MOST_ALTERNATIVES])


def _habits(search: Search, base: Sequence[Structure]) -> list[Way]:
    """What people try first: a smaller batch, half precision, recomputing; each by itself."""
    found = []
    if search.batch is not None and len(search.batch.options) > 1:
        smaller = [search.estimate(base, ((search.batch, option),)) for option in search.batch.options[1:]]
        found.append(next((way for way in smaller if way.peak <= search.room), smaller[-1]))
    for knob in (search.by_name[name] for name in search.unasked):
        found.append(search.estimate(base, ((knob, knob.options[-1]),)))
    if "checkpoint" in search.by_name:
        plain = search.estimate(base, ())
        found.append(search.estimator.within(plain, search.room) or search.estimator.smallest(plain))
    return found


def _best_of_kinds(ways: Sequence[Way]) -> list[Way]:
    """Of each set of knobs the quickest way."""
    best: dict[tuple[str, ...], Way] = {}
    for way in ways:
        kind = (*sorted(knob.name for knob, _ in way.turned), "again" if way.choice.modules else "")
        if kind not in best or way.price < best[kind].price:
            best[kind] = way
    return sorted(best.values(), key=lambda way: way.price)


def _reason(search: Search, way: Way, chosen: Way) -> str:
    room = search.room
    if way.peak > room:
        return f"does not fit: about {(way.peak - room) / 2**30:.2f} GiB too much"
    slower = way.seconds / chosen.seconds - 1
    if slower > 0.005:
        return f"fits, but takes {slower:.0%} more time an image"
    if way.price < chosen.price:  # it was tried, or what was tried taught otherwise
        return "seemed to fit, but full traces need more than was estimated"
    if PROMISES.index(way.promise) > PROMISES.index(chosen.promise):
        return f"fits, but is only {way.promise}, and no quicker to speak of"
    if way.harm > chosen.harm:
        return "fits, but does more harm"
    return "fits as well, with more changes for the same time"


def frontier(search: Search, base: Sequence[Structure], before: Forecast, chosen: Confirmed) -> tuple[Point, ...]:
    """The least time for budgets from what the thriftiest way needs to what the job as it is needs."""
    structures = _structures(search, base, chosen)
    most = max(search.estimate(structures, ()).peak, chosen.peak)
    least = min(search.thriftiest(structure).peak for structure in structures)
    rooms = [int(least * (most / least) ** (step / (STEPS - 1))) for step in range(STEPS)] if least < most else []
    starts = [(structure, batch) for structure in structures for batch in search.batches(structure, structures)]
    found = filter(None, (search.estimator.roughly(starts, int(room * 1.001)) for room in rooms))
    points = [
        Point(search.on_device(way.peak), way.seconds / search.seconds_before, way.promise, described(way.turned, way))
        for way in found
    ]
    here = Point(
        chosen.forecast.on_device.high,
        chosen.seconds / search.seconds_before,
        chosen.way.promise,
        described(chosen.turned, chosen.way),
        chosen=True,
    )
    as_it_is = Point(before.on_device.high, 1.0, PROMISES[0], AS_IT_IS)
    return _undominated([here, as_it_is, *(point for point in points if point.changes != NO_CHANGE)])


def _structures(search: Search, base: Sequence[Structure], chosen: Confirmed) -> list[Structure]:
    """Where the frontier is drawn: the job as it is, and with the knobs that the chosen way has traced for."""
    others = {id(way.structure): way.structure for way in search.looked_at if way.structure.turned}
    return [*base, *(each for each in others.values() if each.turned == chosen.way.structure.turned)][:3]


def _undominated(points: list[Point]) -> tuple[Point, ...]:
    """The chosen point, which was traced, and of the estimated ones those that cost less time for more memory, or need
    less memory for more time."""
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
