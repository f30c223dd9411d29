"""The trainings that bench/fit.py plans and runs: real models, sized so that a step on one CPU core takes seconds.

Small images make weights, gradients and optimizer state a large part of the peak, which they are not in trainings that
run out of memory. So budgets are shares of what lies above these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from oomproof.changes.torch.training import OPTIMIZERS, training_from
from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.sources import open_job
from oomproof.sources.job import Job, Knob, Setting, Settings, TraceRequest
from oomproof.sources.settings import resolve
from oomproof.sources.torch.job import TorchJob, training_settings
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

USELESS = ("precision", "optimizer_state", "channels_last", "optimizer", "freeze_batchnorm")
"""knobs that a CPU does not profit from (its state is in host RAM as it is), or that need pretrained weights"""


@dataclass(frozen=True)
class CpuJob(Job):
    """A job that is traced as the CPU runs it, so that its plan can be held against the real allocator."""

    name: str
    job: Any
    given: Mapping[str, Any]
    detector: bool = False
    """torch.compile does not get through detectors as a whole"""
    full_size: bool = False
    """a step takes a minute and more: only the time until settings are known is compared, and the plan is run once"""

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(self.job.settings)

    @property
    def plain(self) -> Settings:
        """The settings of the job as it is."""
        return resolve(self.job, dict(self.given))

    @property
    def batch(self) -> int:
        return int(self.given["batch"])

    def pieces(self, settings: Settings) -> Pieces:
        made: TorchJob = self.job.with_settings(settings)
        return Pieces(made.model, made.batch, made.loss, made.optimizer or OPTIMIZERS["sgd"])

    def trace(self, request: TraceRequest) -> Timeline:
        settings = request.settings
        return trace_step(
            self.pieces(settings),
            training_from(settings),
            dialect="cpu",
            about=About(job=self.name, settings=settings),
            patience=request.patience,
            progress=request.progress,
        )

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        return tuple(knob for knob in self.job.knobs(settings, about) if knob.name not in USELESS)


@dataclass(frozen=True)
class Classifier:
    """A classifier that torchvision does not have, with AdamW."""

    name: str
    model: Callable[[], torch.nn.Module]
    batch: int
    side: int
    classes: int

    @property
    def settings(self) -> tuple[Setting, ...]:
        return (Setting("batch", self.batch, "images in a step"), *training_settings({}))

    def with_settings(self, settings: Settings) -> TorchJob:
        images = settings["batch"]
        return TorchJob(
            self.model,
            lambda: (torch.rand(images, 3, self.side, self.side), torch.randint(0, self.classes, (images,))),
            lambda net, data: cross_entropy(net(data[0]), data[1]),
            OPTIMIZERS["adamw"],
            mean_over_images=True,
        )

    def knobs(self, settings: Settings, facts: Mapping[str, Any]) -> tuple[Knob, ...]:
        return self.with_settings(settings).knobs(settings, facts)


def _torchvision(name: str, detector: bool = False, full_size: bool = False, **given: Any) -> CpuJob:
    return CpuJob(name, open_job(f"torchvision:{name}"), given, detector, full_size)


def _vit() -> CpuJob:
    import timm

    classifier = Classifier(
        "vit_tiny", lambda: timm.create_model("vit_tiny_patch16_224", pretrained=False), 16, 224, 1000
    )
    return CpuJob("vit_tiny", classifier, {"batch": 16})


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(24, 24, 3, padding=1), torch.nn.GroupNorm(4, 24), torch.nn.GELU()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def _tiny() -> torch.nn.Module:
    head = (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(24, 10))
    return torch.nn.Sequential(torch.nn.Conv2d(3, 24, 3, padding=1), *(_Block() for _ in range(8)), *head)


MAKERS: dict[str, Callable[[], CpuJob]] = {
    "resnet50": lambda: _torchvision("resnet50", batch=16, image_size=(128, 128)),
    "vit_tiny": _vit,
    "retinanet": lambda: _torchvision(
        "retinanet_resnet50_fpn", detector=True, batch=4, image_size=(224, 224), backbone="resnet18"
    ),
    "fasterrcnn": lambda: _torchvision(
        "fasterrcnn_resnet50_fpn", detector=True, batch=6, image_size=(320, 320), backbone="resnet18", roi_samples=64
    ),
    "deeplabv3": lambda: _torchvision("deeplabv3_mobilenet_v3_large", batch=8, image_size=(144, 144)),
    "maskrcnn": lambda: _torchvision(
        "maskrcnn_resnet50_fpn", detector=True, full_size=True, batch=4, image_size=(800, 1333)
    ),
    "tiny": lambda: CpuJob("tiny", Classifier("tiny", _tiny, 16, 64, 10), {"batch": 16}),
}
"""by the name that --job takes; tiny is for tests of the benchmark itself"""
JOBS = tuple(name for name in MAKERS if name != "tiny")


def open_bench_job(name: str) -> CpuJob:
    if name not in MAKERS:
        raise InputError(f"the benchmark has no job '{name}'; it has {', '.join(MAKERS)}")
    return MAKERS[name]()
