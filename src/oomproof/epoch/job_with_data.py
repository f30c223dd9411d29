"""A job whose step is that of the worst batch its dataset can make, whatever the settings: for plans, which change
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from oomproof.data.annotations.dataset import Dataset
from oomproof.epoch.exploring import Exploring
from oomproof.epoch.images import see_images
from oomproof.epoch.memory_model import MemoryModel
from oomproof.epoch.search import find_worst
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule, regroup
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Knob, Setting, Settings, TraceRequest


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
        images = see_images(self.dataset, self.batch_rule(request.settings))
        exploring = Exploring(self.job, images, request)
        if not self._models:
            self._models.append(exploring.learn())
        worst = find_worst(images, self._models[0], exploring.count, most=1)[0]
        return self.job.trace(replace(request, batch=images.spec(worst)))

    def batch_rule(self, settings: Settings) -> BatchRule:
        return regroup(self.job.batch_rule(settings), self.grouped)

    def validates(self, settings: Settings) -> bool:
        return self.job.validates(settings)

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        return self.job.knobs(settings, about)

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
