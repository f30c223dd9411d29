"""A PyTorch training job made of plain pieces. docs/jobs.md shows how to write one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Knob, Setting, Settings, TraceRequest
from oomproof.sources.settings import runtime_settings
from oomproof.sources.torch.training_code import write_training_code

if TYPE_CHECKING:
    import torch


_PIECES = {
    "model": "",
    "batch": "",
    "loss": " model, batch",
    "optimizer": " parameters",
    "step": " model, batch, optimizer",
    "validate": " model, batch",
    "validation_batch": "",
}
"""what each function is called with"""


@dataclass(frozen=True)
class TorchJob(Job):
    """What is trained, as functions that are called when the job is traced.

        TorchJob(
            model=lambda: torchvision.models.resnet50(),
            batch=lambda: (torch.rand(8, 3, 224, 224), torch.randint(0, 1000, (8,))),
            loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
            optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
        )

    Give ``step(model, batch, optimizer)`` instead of ``loss`` where the step is more than loss, backward and update;
    it then runs as it is, and settings that would change it (precision, accumulate ...) are refused.
    """

    model: Callable[[], torch.nn.Module]
    batch: Callable[..., Any]
    """called without arguments; one with a parameter ``images`` also makes a batch of a dataset's images"""
    loss: Callable[[torch.nn.Module, Any], Any] | None = None
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    step: Callable[[torch.nn.Module, Any, torch.optim.Optimizer], Any] | None = None
    name: str = "job"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """other defaults than usual for the training settings, e.g. {"zero_grad": "before_backward"}"""
    mean_over_images: bool = False
    """the loss is a plain mean over the images of a batch: micro-batches then give the same gradients"""
    extra_knobs: tuple[Knob, ...] = ()
    """more that may change to save memory; they win over what oomproof finds under the same name"""
    validate: Callable[[torch.nn.Module, Any], Any] | None = None
    """what is done with a batch between epochs, as ``validate(model, batch)``; what it returns are its predictions"""
    validation_batch: Callable[..., Any] | None = None
    """makes the batch of a validation; None: as in training"""
    batches: BatchRule | None = None
    """how the training resizes, pads and groups a dataset's images, where ``batch`` takes them; None: as stored"""

    def __post_init__(self) -> None:
        for piece, arguments in _PIECES.items():
            given = getattr(self, piece)
            is_made = piece == "model" and hasattr(given, "state_dict") and not isinstance(given, type)
            if is_made or (given is not None and not callable(given)):
                raise InputError(
                    f"TorchJob({piece}=...) must be a function that oomproof can call; it is of type "
                    f"{type(given).__name__}. Wrap it: {piece}=lambda{arguments}: ..."
                )
        if (self.loss is None) == (self.step is None):
            raise InputError("a TorchJob has either a loss(model, batch) or a whole step(model, batch, optimizer)")

    @property
    def settings(self) -> tuple[Setting, ...]:
        return (*training_settings(self.defaults, own_step=self.step is not None), *settings_in_force())

    def torch_pieces(self, settings: Settings) -> tuple[TorchJob, Settings]:
        """The job in plain pieces, and the settings of its training."""
        return self, settings

    def trace(self, request: TraceRequest) -> Timeline:
        from oomproof.changes.torch.training import OPTIMIZERS, training_from
        from oomproof.trace.torch.loop import Pieces
        from oomproof.trace.torch.trace_step import trace_step

        if self.validate is None:
            request.refuse_validation(self.name)
        pieces = Pieces(
            self.model,
            self._batch_of(request),
            self.loss,
            self.optimizer or OPTIMIZERS["sgd"],
            self.step,
            self.validate,
        )
        return trace_step(
            pieces,
            training_from(request.settings),
            about=About(job=self.name, settings=request.settings),
            patience=request.patience,
            validation=request.validation,
            sparse=request.sparse,
            progress=request.progress,
        )

    def batch_rule(self, settings: Settings) -> BatchRule:
        if not self._takes_images:
            raise InputError(
                f"{self.name} makes its batches itself: --data wants a batch(images) that makes one of images with "
                "height, width and objects (docs/jobs.md)"
            )
        if not settings.name_of("batch") and self.batches is None:
            raise InputError(
                f"{self.name} does not say how many images a batch has: give its function a parameter batch, or the "
                "job batches=oomproof.BatchRule(images=...)"
            )
        rule = self.batches or BatchRule(1, "the job gets images as they are stored", by_network=True, exact=False)
        return replace(rule, images=int(settings.of("batch", rule.images)))

    @property
    def _takes_images(self) -> bool:
        return "images" in inspect.signature(self.batch).parameters

    def _batch_of(self, request: TraceRequest) -> Callable[[], Any]:
        """What makes the batch of a request."""
        make = self.batch if request.validation is None else self.validation_batch or self.batch
        if request.batch is None:
            return make
        if "images" not in inspect.signature(make).parameters:
            request.refuse_batch(self.name)
        images = request.batch.images
        return lambda: make(images=images)

    def validates(self, settings: Settings) -> bool:
        return self.validate is not None

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        if self.step is not None:  # whoever steps by themselves also decides about precision, batches and memory
            return self.extra_knobs
        from oomproof.sources.torch.knobs import training_knobs

        found = training_knobs(settings, about, mean_over_images=self.mean_over_images, matching=False)
        names = {knob.name for knob in self.extra_knobs}
        return (*(knob for knob in found if knob.name not in names), *self.extra_knobs)

    @property
    def place(self) -> Path:
        raise InputError("a TorchJob made in Python has no file of its own: say where its settings should go")

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        return write_training_code(settings, path, ["model, loss = ...  # as the job has them"])


def training_settings(defaults: Mapping[str, Any], own_step: bool = False) -> tuple[Setting, ...]:
    """The settings of every PyTorch job; a job with a step of its own decides most of them itself."""
    from oomproof.changes.torch.training import CHOICES, HELP, USUAL, Training

    names = ("channels_last", "ema") if own_step else tuple(Training.__dataclass_fields__)
    plain = Training()
    return tuple(
        Setting(
            name,
            defaults.get(name, getattr(plain, name)),
            HELP[name],
            CHOICES.get(name, ()),
            usual=USUAL.get(name, ()),
        )
        for name in names
    )


def settings_in_force() -> tuple[Setting, ...]:
    """Settings of the run that the job's code has made by now, for the whole process."""
    import torch

    made = {"cudnn_benchmark": torch.backends.cudnn.benchmark} if torch.backends.cudnn.benchmark else {}
    return tuple(each for each in runtime_settings(made) if each.name in made)
