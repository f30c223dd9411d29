"""Traced steps for estimates: the job with knobs turned, for few images, each traced once."""

from __future__ import annotations

from dataclasses import dataclass, field

from oomproof.errors import CannotDo, JobError
from oomproof.plan import attempts
from oomproof.plan.estimates.traced_step import TracedStep, split_by_size
from oomproof.plan.plan import Attempt
from oomproof.plan.problem import Problem
from oomproof.plan.tracing import Tracing
from oomproof.plan.turned_knobs import Turned, describe_turned


@dataclass
class StepTracer:
    """Traces a problem's steps, and notes which of them the job cannot run."""

    problem: Problem
    tracing: Tracing
    attempts: list[Attempt]
    _steps: dict[str, TracedStep] = field(default_factory=dict)
    _refused: dict[str, CannotDo | JobError] = field(default_factory=dict)

    def trace(self, turned: tuple[Turned, ...]) -> TracedStep:
        """With these knobs turned, for few images; raises what the job refuses with."""
        words = describe_turned(turned)
        if words in self._refused:
            raise self._refused[words]
        if words not in self._steps:
            self.tracing.done = max(0.2, self.tracing.done)
            try:
                self._steps[words] = self._trace(turned, f"tracing with {words}")
            except (CannotDo, JobError) as error:
                self._refused[words] = error
                self.attempts.append(attempts.cannot_run(words, error))
                raise
            images = f", with {count_images(self.problem.few)}" if self.problem.batch is not None else ""
            self.attempts.append(Attempt(words, "few images", "traced", f"to estimate from{images}"))
        return self._steps[words]

    def trace_if_it_runs(self, turned: tuple[Turned, ...]) -> TracedStep | None:
        """None where the job cannot turn these knobs: a network that cannot be cut, a library that is not there."""
        try:
            return self.trace(turned)
        except (CannotDo, JobError):
            return None

    def estimate(self, base: TracedStep, turned: tuple[Turned, ...]) -> TracedStep:
        """By proportion where the effect is one of proportion, else by a trace."""
        traced, by_size = split_by_size(turned)
        start = self.trace(traced) if traced else base
        return start.resize(turned, self.problem.with_turned(turned)) if by_size else start

    def trace_few(self) -> TracedStep:
        """The job as it is, but for few images."""
        return self._trace((), f"tracing the step with {count_images(self.problem.few)}")

    def trace_whole(self) -> TracedStep:
        """The job as it is."""
        settings, images = self.problem.settings, self.problem.images
        step, _ = self.tracing.trace(settings, f"tracing the step as it is, with {images} images")
        return self.tracing.make_traced_step((), settings, step, images)

    def _trace(self, turned: tuple[Turned, ...], doing: str) -> TracedStep:
        few, settings = self.problem.few, self.problem.with_turned(turned)
        step, _ = self.tracing.trace(self.problem.at_images(few, settings), doing)
        return self.tracing.make_traced_step(turned, settings, step, few)


def count_images(count: int) -> str:
    return f"{count} image{'s' * (count > 1)}"
