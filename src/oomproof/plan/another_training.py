"""Knobs that make another training: tried last, by rising harm, until one combination fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomproof.errors import CannotDo, JobError
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.problem import Problem
from oomproof.plan.step_tracer import StepTracer
from oomproof.plan.turned_knobs import Turned, combine
from oomproof.sources.job import Knob

MOST_COMBINATIONS, MOST_TRACES = 240, 40
"""those looked at, and the traces they may take together"""


def steps_by_harm(
    problem: Problem, base: TracedStep, knobs: Sequence[Knob], tracer: StepTracer
) -> Iterator[tuple[tuple[Turned, ...], list[TracedStep]]]:
    """Combinations of ``knobs`` by rising harm, each with steps estimated or traced for it; those that the job cannot
    run are left out."""
    by_harm = sorted(combine(knobs), key=lambda turned: sum(option.harm for _, option in turned))
    precision = problem.precision
    starts: list[tuple[Turned, ...]] = [()]
    if precision is not None:
        starts.append(((precision, precision.options[-1]),))
    most = tracer.tracing.count + MOST_TRACES
    for turned in by_harm[:MOST_COMBINATIONS]:
        if tracer.tracing.count >= most:
            return
        try:
            found = [tracer.estimate(base, (*start, *turned)) for start in starts]
        except (CannotDo, JobError):  # the tracer has noted it
            continue
        yield turned, found
