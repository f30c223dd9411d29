"""Each change of a plan with its share of the bytes and of the time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from oomproof.memory.forecast import Forecast
from oomproof.plan.confirmed import Confirmed
from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.traced_step import split_by_size
from oomproof.plan.estimates.way import Way
from oomproof.plan.plan import Change
from oomproof.plan.problem import ESTIMATED, Problem
from oomproof.plan.turned_knobs import Turned, promise_of
from oomproof.sources.job import PROMISES


def sets_to_trace(problem: Problem, way: Way) -> list[tuple[Turned, ...]]:
    """Knobs turned together for which ``share_out`` needs a trace: those that no what-if covers, one after another."""
    found = []
    for count in range(1, len(way.turned) + 1):
        apart = [
            each
            for each in _in_order(problem, way)[:count]
            if each[0].name not in ESTIMATED and each[0] is not problem.batch
        ]
        traced, _ = split_by_size(apart)
        if traced and traced not in found:
            found.append(traced)
    return found


def share_out(estimates: Estimates, before: Forecast, chosen: Confirmed) -> tuple[Change, ...]:
    """The turned knobs, least harmful first. Bytes add up to what the two forecasts differ by; factors of time multiply
    to the plan's time."""
    problem, way = estimates.problem, chosen.way
    order = _in_order(problem, way)
    path = [_estimate(estimates, order[:count]) for count in range(len(order) + 1)]
    found = [
        _change(each, now.peak - then.peak, then.seconds / now.seconds)
        for each, now, then in zip(order, path[:-1], path[1:], strict=True)
    ]
    if way.recomputed.modules:
        place = sum(change.promise == PROMISES[0] for change in found)
        found.insert(place, _describe_recomputing(problem, chosen, path[-1]))
    run = zip(chosen.run, chosen.run_frees, strict=True)
    found = [*(_change(each, frees, 1.0) for each, frees in run), *found]
    freed = before.on_device.expected - chosen.forecast.on_device.expected
    return _time_in_proportion(_bytes_in_proportion(found, freed), estimates.time(chosen.seconds))


def _in_order(problem: Problem, way: Way) -> list[Turned]:
    return sorted(way.turned, key=lambda each: (PROMISES.index(promise_of(*each)), each[1].harm, problem.rank(each[0])))


def _estimate(estimates: Estimates, turned: Sequence[Turned]) -> Way:
    way = estimates.estimate(turned)
    assert way is not None, "every set of sets_to_trace was traced"
    return way


def _change(turned: Turned, frees: int, time: float) -> Change:
    knob, option = turned
    why = f"{knob.why}; {option.note}" if option.note else knob.why
    before = knob.options[0].value
    return Change(knob.name, before, option.value, promise_of(knob, option), why, frees, time, option.settings)


def _describe_recomputing(problem: Problem, chosen: Confirmed, without: Way) -> Change:
    knob, setting = problem.by_name["checkpoint"], chosen.way.recomputed.setting
    return Change(
        "checkpoint",
        knob.options[0].value,
        setting,
        knob.promise,
        knob.why,
        without.peak - chosen.peak,
        chosen.way.seconds / without.seconds,
        {"checkpoint": setting},
    )


def _bytes_in_proportion(found: list[Change], freed: int) -> list[Change]:
    """Estimated shares, brought to add up to ``freed``."""
    shares = [max(0, change.frees) for change in found]
    if not any(shares):  # no estimate shows what the traces do
        shares = [int(change.frees == 0) for change in found]  # but not for what takes memory by itself
    if not any(shares):
        shares = [1] * len(found)
    ends = [max(0, freed) * part // sum(shares) for part in itertools.accumulate(shares)]
    return [replace(change, frees=end - start) for change, start, end in zip(found, [0, *ends], ends, strict=False)]


def _time_in_proportion(found: list[Change], time: float) -> tuple[Change, ...]:
    """Estimated factors, brought to multiply to ``time``: what cost or saved the most takes most of the rest."""
    rest = math.log(time / math.prod(change.time for change in found)) if found else 0.0
    weights = [abs(math.log(change.time)) for change in found]
    if sum(weights) < abs(rest):  # no estimate shows what the traces do
        weights = [weight + abs(rest) for weight in weights]
    total = sum(weights) or 1.0
    return tuple(
        replace(change, time=change.time * math.exp(rest * weight / total))
        for change, weight in zip(found, weights, strict=True)
    )
