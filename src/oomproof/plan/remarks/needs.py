"""What would have to be allowed, where nothing that is allowed fits."""

from __future__ import annotations

from dataclasses import replace

from oomproof.errors import CannotDo, JobError
from oomproof.plan.another_training import steps_by_harm
from oomproof.plan.attempts import note_full_trace, note_refusal
from oomproof.plan.confirmed import confirm
from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.way import Way
from oomproof.plan.problem import Problem
from oomproof.plan.selection import select_knobs
from oomproof.plan.step_tracer import StepTracer
from oomproof.plan.turned_knobs import combine, describe_turned
from oomproof.sources.job import PROMISES, Knob

MOST_TRACES = 8
MOST_TRIES = 3
"""of the ways that one option would open"""


def find_needs(problem: Problem, estimates: Estimates, tracer: StepTracer) -> tuple[str, ...]:
    """Options of the command, each with what it would lead to: ways that were traced in full, and fit. ``tracer`` is
    for knobs that no trace has shown yet."""
    found: list[str] = []
    words, wider = "--allow", estimates
    if problem.keep == PROMISES[0]:
        words = "--keep equivalent --allow"
        wider = estimates.with_problem(replace(problem, knobs=select_knobs(problem.others, PROMISES[1], ())))
        enough = _best_of(wider, tracer)
        if enough:
            return (f"--keep equivalent: {enough} would fit",)
    traced = tracer.tracing.count
    for knob in problem.others:
        if knob.promise != PROMISES[2] or knob.name in problem.by_name or tracer.tracing.count - traced > MOST_TRACES:
            continue
        more = wider.with_problem(replace(wider.problem, knobs=(*wider.problem.knobs, knob)))
        enough = _least_of(more, knob, tracer)
        if enough:
            found.append(f"{words} {knob.name}: {enough} would fit")
    if enough := _smaller_batch(problem, wider, tracer):
        found.insert(0, f"{words} {enough} would fit")
    if not found:
        estimated = estimates.room.on_device(min(estimates.thriftiest(step).peak for step in estimates.base))
        least = min([estimated, *(each.device for each in tracer.attempts if each.device is not None)]) / 2**30
        found.append(f"no knob that may be turned is enough: it needs about {least:.2f} GiB at least")
    return tuple(found)


def _smaller_batch(problem: Problem, estimates: Estimates, tracer: StepTracer) -> str:
    """Where a framework cannot cut its batch up, a smaller one is another training that may be allowed."""
    whole = next((knob for knob in problem.others if knob.role == "batch"), None)
    if whole is None or problem.batch is None or len(problem.batch.options) > 1:
        return ""
    knobs = tuple(whole if knob.name == whole.name else knob for knob in estimates.problem.knobs)
    enough = _best_of(estimates.with_problem(replace(estimates.problem, knobs=knobs)), tracer)
    return enough and f"{whole.name}: {enough}"


def _best_of(estimates: Estimates, tracer: StepTracer) -> str:
    """The best way, in words; empty where none fits."""
    wanted = combine(estimates.problem.list_retraced_knobs())
    steps = [*estimates.base, *(step for turned in wanted if (step := tracer.trace_if_it_runs(turned)))]
    way = _find_fitting(estimates, steps, tracer)
    return "" if way is None else way.words


def _least_of(estimates: Estimates, knob: Knob, tracer: StepTracer) -> str:
    """The least that has to be made of one knob, in words; empty where no value of it is enough."""
    for turned, steps in steps_by_harm(estimates.problem, estimates.base[0], [knob], tracer):
        if _find_fitting(estimates, list(steps), tracer):
            return describe_turned(turned)
    return ""


def _find_fitting(estimates: Estimates, steps: list[TracedStep], tracer: StepTracer) -> Way | None:
    """The best way from these steps that runs and fits, traced in full: an estimate knows nothing of a network that
    cannot run with one image."""
    for _ in range(MOST_TRIES):
        way = min(estimates.find_fitting(steps), key=lambda way: way.price, default=None)
        if way is None:
            return None
        try:
            confirmed = confirm(way, estimates, tracer.tracing)
        except (CannotDo, JobError) as error:
            tracer.attempts.append(note_refusal(way, estimates, error))
            estimates = estimates.without(way)
            continue
        tracer.attempts.append(note_full_trace(confirmed, estimates, None))
        if confirmed.forecast.fits:
            return way
        steps[steps.index(way.step)] = way.step.correct(confirmed.correction)
    return None
