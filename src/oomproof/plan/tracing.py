"""Traces for the search: each once, with what is needed to estimate from it. Counts them and their time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from oomproof.memory import make_forecast as forecaster
from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast
from oomproof.memory.lasting import with_lasting
from oomproof.memory.make_forecast import Terms
from oomproof.memory.scratch import price_calls
from oomproof.memory.timeline import Timeline
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.what_if import step_start
from oomproof.plan.turned_knobs import Turned
from oomproof.sources.job import Job, Settings
from oomproof.trace.request import TraceRequest

Say = Callable[[str, float], None]
"""what is being done, and how much of the work is done, from 0 to 1"""


@dataclass
class Tracing:
    """A job on a device, traced under one settings after another."""

    job: Job
    device: Device
    say: Say
    count: int = 0
    done: float = 0.0
    """how much of the search is done, as far as can be told"""
    _kept: dict[str, tuple[Timeline, float]] = field(default_factory=dict)

    def trace(self, settings: Settings, doing: str, *, patience: int | None = None) -> tuple[Timeline, float]:
        """The Timeline, and the seconds it took to trace. A step that asks for more values than ``patience`` is
        given up (TooManyValues)."""
        key = _key(settings)
        if key not in self._kept:
            began = time.perf_counter()
            self.say(doing, self.done)
            step = self.job.trace(TraceRequest(settings, self.device, patience))
            self.count += 1
            self._kept[key] = self._with_work(step, settings, doing), time.perf_counter() - began
        return self._kept[key]

    def is_kept(self, settings: Settings) -> bool:
        """Whether these settings were traced."""
        return _key(settings) in self._kept

    def _with_work(self, step: Timeline, settings: Settings, doing: str) -> Timeline:
        """A compiler's plan shows no work. Its time is taken to be that of the same operations, one by one."""
        one_by_one = None if len(step.work) else self.job.settings_for_time(settings)
        if one_by_one is None:
            return step
        work = self.trace(one_by_one, f"{doing}, and its time")[0].work
        start = np.full(len(work), step_start(step), dtype=np.int64)  # ticks and owners are those of another trace
        return replace(step, work=replace(work, tick=start, owner=np.zeros(len(work), dtype=np.int64)))

    def forecast(self, step: Timeline, settings: Settings) -> Forecast:
        return forecaster.build_forecast(step, self.device, forecaster.at_runtime(settings), self.job.name, settings)

    def terms(self, step: Timeline, settings: Settings) -> Terms:
        """What the device's side of a forecast rests on: the room for live blocks, and whether they leave gaps."""
        return forecaster.terms(step, self.device, forecaster.at_runtime(settings))

    def lean(self, step: Timeline, settings: Settings) -> tuple[Timeline, int]:
        """The step with the least scratch that its kernels can do with; and what is held all the time besides."""
        runtime, held = forecaster.at_runtime(settings), self.terms(step, settings)
        expected, low, _ = price_calls(step, held.prices)
        besides = with_lasting(step, self.device, runtime).bytes.sum() - step.bytes.sum() if held.caching else 0
        return step.with_scratch(low if held.caching else expected), int(besides)

    def make_traced_step(
        self, turned: tuple[Turned, ...], settings: Settings, step: Timeline, images: int
    ) -> TracedStep:
        lean, besides = self.lean(step, settings)
        return TracedStep(turned, settings, lean, images, besides)


def _key(settings: Settings) -> str:
    return repr(sorted((name, repr(value)) for name, value in settings.items()))
