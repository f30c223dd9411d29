"""A job whose step is that of the worst batch its dataset can make, whatever the settings: for plans, which change
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.in_ram import find_host_data
from oomproof.epoch.exploring import Exploring
from oomproof.epoch.few import find_few
from oomproof.epoch.images import see_images
from oomproof.epoch.memory_model import MemoryModel
from oomproof.epoch.search import find_worst
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule, regroup
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Knob, ReadsData, Setting, Settings, TraceRequest


@dataclass(eq=False)
class JobWithData(Job):
    """Small batches are traced once, under the first settings: which images are the worst changes little with others.
    Where a plan ends, its worst batch is looked for anew."""

    job: Job
    dataset: Dataset
    grouped: bool | None = None
    _models: list[MemoryModel] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def settings(self) -> tuple[Setting, ...]:
        return self.job.settings

    def trace(self, request: TraceRequest) -> Timeline:
        step = self._trace_worst(request)
        return replace(step, about=replace(step.about, dataset=self._in_ram))

    def _trace_worst(self, request: TraceRequest) -> Timeline:
        rule = self.batch_rule(request.settings)
        if rule.same:
            return self.job.trace(request)
        images = see_images(self.dataset, rule)
        exploring = Exploring(self.job, images, request, self._in_ram)
        few = find_few(images, exploring.count) if self.job.traces_take_long else []
        if len(few) == 1:
            return self.job.trace(replace(request, batch=images.spec(few[0])))
        if not self._models:
            for places in few:
                exploring.trace(places, "tracing what can be the worst batch")
            self._models.append(exploring.fit() if few else exploring.learn())
        worst = find_worst(images, self._models[0], exploring.count, most=1)[0]
        return self.job.trace(replace(request, batch=images.spec(worst)))

    @cached_property
    def _in_ram(self) -> Mapping[str, int]:
        return find_host_data(self.dataset).as_mapping()

    def price_data(self, settings: Settings) -> Callable[[Settings], Mapping[str, Any]]:
        return self.job.price_data(settings) if isinstance(self.job, ReadsData) else lambda other: {}

    def batch_rule(self, settings: Settings) -> BatchRule:
        return regroup(self.job.batch_rule(settings), self.grouped)

    def validation_rule(self, settings: Settings) -> BatchRule:
        return self.job.validation_rule(settings)

    def validates(self, settings: Settings) -> bool:
        return self.job.validates(settings)

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        return self.job.knobs(settings, about)

    def describe_other_ways(self, settings: Settings) -> tuple[str, ...]:
        return self.job.describe_other_ways(settings)

    def settings_for_plans(self, settings: Settings) -> Settings:
        return self.job.settings_for_plans(settings)

    def settings_for_time(self, settings: Settings) -> Settings | None:
        return self.job.settings_for_time(settings)

    @property
    def place(self) -> Path:
        return self.job.place

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        return self.job.training_code(settings, path, changes)

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        return self.job.write(settings, target, device=device, changes=changes)
