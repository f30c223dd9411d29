"""What would help a step that does not fit, each change by itself: the plan's own estimates, from the one trace that
``check`` has made. What wants another trace has no figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oomproof.memory.forecast import Forecast, Hint
from oomproof.memory.timeline import Timeline
from oomproof.memory.widening import stays_wide
from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.way import Way
from oomproof.plan.first_estimates import first_estimates
from oomproof.plan.problem import ESTIMATED, RUN, Problem
from oomproof.plan.tracing import Tracing
from oomproof.plan.turned_knobs import promise_of
from oomproof.sources.job import PROMISES, Knob, Option

WORTH_SAYING = 1 << 26
"""bytes that a change must save to be named: 64 MiB"""


@dataclass(frozen=True)
class _Found:
    """A hint with what decides its place."""

    hint: Hint
    enough: bool
    """it should fit with this change alone"""

    @property
    def place(self) -> tuple[bool, int, int]:
        return not self.enough, PROMISES.index(self.hint.promise), -(self.hint.saves or 0)


def find_hints(tracing: Tracing, problem: Problem, step: Timeline, forecast: Forecast) -> tuple[Hint, ...]:
    """The surest first: what is enough by itself, then what keeps the training, then what saves the most."""
    found = [*_of_the_run(tracing, problem, step, forecast)]
    if step.about.recorded:
        pass  # it cannot be made smaller
    elif not len(step.work):
        found += _of_a_compiled_step(problem)
    else:
        traced = tracing.make_traced_step((), problem.settings, step, problem.images)
        estimates = first_estimates(problem, tracing, step, (traced,), forecast)
        found += _of_the_step(estimates, forecast)
    sure = [each for each in found if each.hint.saves is not None and each.hint.saves >= WORTH_SAYING]
    unsure = [each for each in found if each.hint.saves is None]
    return tuple(each.hint for each in (*sorted(sure, key=lambda each: each.place), *unsure))


def _of_the_run(tracing: Tracing, problem: Problem, step: Timeline, now: Forecast) -> Iterator[_Found]:
    """The run around the step needs no estimate: the same trace is replayed."""
    for knob in (problem.by_name[name] for name in RUN if name in problem.by_name):
        option = knob.options[-1]
        then = tracing.forecast(step, problem.settings.with_values(option.settings))
        yield _Found(_hint(knob, option, now.excess - then.excess), then.on_device_outcome == "fits")


def _of_the_step(estimates: Estimates, forecast: Forecast) -> Iterator[_Found]:
    problem, now = estimates.problem, estimates.as_it_is()
    for knob in problem.knobs:
        if knob.name == "checkpoint":
            yield from _hint_at_recomputing(estimates, now, forecast, knob)
        elif knob.role == "image size" or knob is problem.batch or (knob.name in ESTIMATED and knob.name not in RUN):
            ways = [(option, way) for option in knob.options[1:] if (way := estimates.estimate(((knob, option),)))]
            yield from _first_that_fits(estimates, now, forecast, knob, ways)
        elif knob.role == "precision" and not stays_wide(now.step.timeline.about, now.step.timeline):
            yield _Found(_hint(knob, knob.options[-1], None), False)


def _of_a_compiled_step(problem: Problem) -> Iterator[_Found]:
    """A compiler has laid it out, and would lay out a smaller one in its own way: nothing to estimate from."""
    for knob in problem.knobs:
        if knob is problem.batch or knob.role in ("image size", "precision"):
            yield _Found(_hint(knob, knob.options[-1 if knob.role == "precision" else 1], None), False)


def _first_that_fits(
    estimates: Estimates, now: Way, forecast: Forecast, knob: Knob, ways: Sequence[tuple[Option, Way]]
) -> Iterator[_Found]:
    """The mildest option that is enough, or the one that saves the most."""
    room = estimates.room.live
    fitting = ((option, way) for option, way in ways if way.peak <= room)
    least = min(ways, key=lambda each: each[1].peak, default=None)
    chosen = next(fitting, least)
    if chosen is not None:
        option, way = chosen
        yield _Found(_hint(knob, option, _estimate_saving(forecast, now, way.peak)), way.peak <= room)


def _hint_at_recomputing(estimates: Estimates, now: Way, forecast: Forecast, knob: Knob) -> Iterator[_Found]:
    """Which modules to compute again, a plan works out; here is the most that it could bring."""
    saves = _estimate_saving(forecast, now, estimates.ways.least_peak(now))
    why = "names modules to compute again in backward, for time"
    yield _Found(Hint("checkpoint", {}, saves, knob.promise, why, at_most=True), enough=False)


def _estimate_saving(forecast: Forecast, now: Way, peak: int) -> int:
    """Of the upper figure, where as much is reserved for a live byte as in the step as it is."""
    return int((now.peak - peak) * forecast.reserved.high / max(1, now.peak))


def _hint(knob: Knob, option: Option, saves: int | None) -> Hint:
    changed = {name: value for name, value in option.settings.items() if knob.options[0].settings.get(name) != value}
    return Hint(knob.name, changed, saves, promise_of(knob, option), knob.why)
