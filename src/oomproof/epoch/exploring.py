"""Finds the worst batch: traces a few, fits a model, traces what the model takes for the worst, and fits again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from oomproof.epoch.features import batch_features
from oomproof.epoch.images import Images
from oomproof.epoch.memory_model import MemoryModel, fit_model
from oomproof.epoch.moments import Moment, find_moments
from oomproof.epoch.probes import choose_probes
from oomproof.epoch.search import find_worst
from oomproof.memory import make_forecast
from oomproof.memory.batch_spec import BatchSpec
from oomproof.memory.forecast import Forecast
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job
from oomproof.sources.least_memory import with_least
from oomproof.trace.request import TraceRequest, be_silent

ROUNDS = 6
"""batches that are traced because the model takes them for the worst, at the most"""
CLOSE = 0.0002
"""a batch that the model takes for worse than the traced ones by less than this part is not traced"""
ALIKE = 0.03
"""where traces are quick, batches that come as near as this to the worst are traced as well"""
QUICK_ROUNDS, QUICK = 20, 1000
"""that many of them, for steps of no more blocks than this"""

Places = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TracedBatch:
    places: Places
    spec: BatchSpec
    step: Timeline
    forecast: Forecast
    moments: dict[Moment, int]

    @property
    def allocated(self) -> int:
        return self.forecast.allocated.expected


@dataclass
class Exploring:
    """A job's batches on a device, traced one after another."""

    job: Job
    images: Images
    request: TraceRequest
    """under which settings, for which device"""
    in_ram: Mapping[str, int] = field(default_factory=dict)
    """what the dataset takes of the host's RAM, as ``about.dataset`` has it"""
    traced: dict[Places, TracedBatch] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Images of a whole batch."""
        return min(self.images.rule.images, len(self.images))

    def trace(self, places: Places, doing: str) -> TracedBatch:
        if places not in self.traced:
            self.traced[places] = self.trace_spec(places, self.images.spec(places), doing)
        return self.traced[places]

    def trace_spec(self, places: Places, spec: BatchSpec, doing: str) -> TracedBatch:
        """A batch of these images, at sizes of their own. Not what the model is fitted to."""
        request, device = self.request, self.request.device
        assert device is not None
        request.progress(f"{doing}: trace {len(self.traced) + 1}")
        step = self.job.trace(replace(request, batch=spec, progress=be_silent))
        step = replace(step, about=replace(step.about, dataset=self.in_ram))
        runtime = make_forecast.at_runtime(request.settings)
        return TracedBatch(places, spec, step, self._forecast(step), find_moments(step, device, runtime))

    def look_at_least(self, batch: TracedBatch) -> TracedBatch:
        """The same batch with a lower figure for samplers that find little: a trace that few batches are worth."""
        request = replace(self.request, batch=batch.spec, progress=be_silent)
        step = with_least(self.job, request, batch.step)
        return batch if step is batch.step else replace(batch, step=step, forecast=self._forecast(step))

    def _forecast(self, step: Timeline) -> Forecast:
        request = self.request
        assert request.device is not None
        runtime, known = make_forecast.at_runtime(request.settings), _complete_settings(step, request.settings)
        return make_forecast.build_forecast(step, request.device, runtime, step.about.job or self.job.name, known)

    def fit(self) -> MemoryModel:
        heights, widths = self.images.sizes
        rows = [batch_features(self.images, heights, widths, np.array([places])) for places in self.traced]
        return fit_model(np.concatenate(rows), [each.moments for each in self.traced.values()])

    def learn(self) -> MemoryModel:
        """From small batches."""
        for places in choose_probes(self.images, self.count):
            self.trace(places, "tracing small batches")
        return self.fit()

    def explore(self) -> tuple[TracedBatch, MemoryModel]:
        """The worst batch, traced, and the model that found it."""
        self.learn()
        quick = max(len(each.step) for each in self.traced.values()) <= QUICK
        for _ in range(QUICK_ROUNDS if quick else ROUNDS):
            model = self.fit()
            worst = self._find_untraced_worst(model, -ALIKE if quick else CLOSE)
            if worst is None:
                break
            self.trace(worst, "tracing the worst batch")
        return self.find_worst_traced(), self.fit()

    def _find_untraced_worst(self, model: MemoryModel, close: float) -> Places | None:
        """What the model takes for worse than all that was traced, by more than ``close``."""
        untraced = [each for each in find_worst(self.images, model, self.count) if each not in self.traced]
        whole = [places for places in self.traced if len(places) == self.count and self._is_possible(places)]
        if not untraced or (whole and self.rate(model, untraced[:1])[0] <= self.rate(model, whole).max() * (1 + close)):
            return None
        return untraced[0]

    def rate(self, model: MemoryModel, batches: list[Places]) -> np.ndarray:
        heights, widths = self.images.sizes
        return model.predict(batch_features(self.images, heights, widths, np.array(batches)))

    def find_worst_traced(self) -> TracedBatch:
        able = [each for each in self.traced.values() if self._is_possible(each.places)]
        return max(able or list(self.traced.values()), key=lambda each: (each.allocated, len(each.places)))

    def _is_possible(self, places: Places) -> bool:
        """Whether an epoch can make the batch: its images are of one group."""
        return len({int(self.images.groups[place]) for place in places}) == 1


def _complete_settings(step: Timeline, settings: Settings) -> Settings:
    traced = step.about.settings
    return Settings({**traced, **settings}, {**traced.roles, **settings.roles})
