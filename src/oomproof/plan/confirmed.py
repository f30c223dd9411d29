"""Full traces of ways: what a plan may answer with."""

from __future__ import annotations

from dataclasses import dataclass

from oomproof.memory.forecast import Forecast
from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.room import at_ease
from oomproof.plan.estimates.way import Way
from oomproof.plan.problem import RUN
from oomproof.plan.tracing import Tracing
from oomproof.plan.turned_knobs import Turned, describe_turned
from oomproof.sources.job import Settings

TIGHT = 0.1
"""time that emptying the cache again and again is taken to cost, as a part of the step"""


@dataclass(frozen=True)
class Confirmed:
    """A way that was traced in full."""

    way: Way
    settings: Settings
    forecast: Forecast
    seconds: float
    """of one image"""
    peak: int
    """live bytes with the least scratch: what the estimate should have been"""
    run: tuple[Turned, ...] = ()
    """knobs of the run around the step that it needs"""
    run_frees: tuple[int, ...] = ()
    """bytes of device memory that each of these frees"""

    @property
    def turned(self) -> tuple[Turned, ...]:
        return (*self.run, *self.way.turned)

    @property
    def words(self) -> str:
        return describe_turned(self.turned, self.way.recomputed.modules)

    @property
    def price(self) -> float:
        """As ways are compared; living from hand to mouth has a price too."""
        return self.seconds * self.way.price / self.way.seconds * (1.0 if at_ease(self.forecast) else 1 + TIGHT)

    @property
    def correction(self) -> float:
        """What the full trace has taught, as a factor: larger blocks, more fragments, larger workspaces."""
        blocks = self.peak / max(1, self.way.peak)
        whole = 1 + self.forecast.excess / self.forecast.budget
        return max(blocks, min(whole, 1.1), 1.02)


def confirm(way: Way, estimates: Estimates, tracing: Tracing) -> Confirmed:
    """Traces a way in full; the run around it is changed too where that makes it fit, or fit with ease."""
    problem = estimates.problem
    settings = problem.settings.with_values(way.changed)
    tracing.done = min(0.9, max(0.4, tracing.done + 0.1))
    step, _ = tracing.trace(settings, f"confirming {way.words}")
    run: tuple[Turned, ...] = ()
    forecast = tracing.forecast(step, settings)
    run_frees: list[int] = []
    for knob in (problem.by_name[name] for name in RUN if name in problem.by_name):
        if at_ease(forecast):
            break
        then = tracing.forecast(step, settings.with_values(knob.options[-1].settings))
        if (then.fits and not forecast.fits) or then.excess < forecast.excess:
            run = (*run, (knob, knob.options[-1]))
            run_frees.append(forecast.on_device.expected - then.on_device.expected)
            settings = settings.with_values(knob.options[-1].settings)
            forecast = then
    lean, besides = tracing.lean(step, settings)
    seconds = estimates.seconds(step, settings)
    return Confirmed(way, settings, forecast, seconds, lean.peak().bytes + besides, run, tuple(run_frees))
