"""The first estimates of a problem: from the job as it is, traced or worked out."""

from __future__ import annotations

from oomproof.memory.forecast import Forecast
from oomproof.memory.timeline import Timeline
from oomproof.plan.estimates import what_if
from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.roofline import seconds_of
from oomproof.plan.estimates.room import Room, find_room
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.ways import Ways
from oomproof.plan.problem import LIMIT, Problem
from oomproof.plan.tracing import Tracing


def first_estimates(
    problem: Problem, tracing: Tracing, whole: Timeline, base: tuple[TracedStep, ...], forecast: Forecast
) -> Estimates:
    """``whole`` is the step as it is, with its ``forecast``; ``base`` is what to estimate from. Nothing is traced."""
    settings, state = problem.settings, what_if.state_bytes(whole)
    travels = state if settings.get("optimizer_state") == "host" else 0
    return Estimates(
        problem,
        base,
        _find_room(problem, tracing, whole, forecast),
        Ways(problem.speed, problem.knobs),
        seconds_of(whole, problem.speed, problem.images, int(settings.get("accumulate", 1)), travels),
        state,
    )


def _find_room(problem: Problem, tracing: Tracing, step: Timeline, forecast: Forecast) -> Room:
    lean, besides = tracing.lean(step, problem.settings)
    expandable = not problem.by_name.keys().isdisjoint(("expandable_segments", "memory_growth"))
    terms = tracing.terms(step, problem.settings)
    room = find_room(forecast, terms, lean.peak().bytes + besides, expandable=expandable)
    return with_all_memory(room, problem, tracing, step) if LIMIT in problem.named else room


def with_all_memory(room: Room, problem: Problem, tracing: Tracing, step: Timeline) -> Room:
    """Ways may need what the framework takes of the device only when it is told to."""
    return room.grow(tracing.terms(step, problem.with_all_memory()))
