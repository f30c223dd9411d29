"""A model that a library has under a name, trained in that library's own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.batch_spec import note_on_objects
from oomproof.memory.timeline import Timeline
from oomproof.sources.image_sizes import harm_of_size, likely_divisor, smaller_sizes
from oomproof.sources.job import SUFFIX, Job, Knob, Option, Setting, Settings, TraceRequest
from oomproof.sources.torch.job import TorchJob, training_settings
from oomproof.sources.torch.training_code import write_training_code


@dataclass(frozen=True)
class NamedJob(Job):
    """``own`` are the settings that ``make`` makes a TorchJob of; ``usual`` the library's defaults for those that every
    PyTorch job has, or functions of the other settings."""

    name: str
    own: tuple[Setting, ...]
    make: Callable[[Settings], TorchJob]
    code: Callable[[Settings], Sequence[str]]
    """the lines that build model and loss, for a user to paste"""
    usual: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    mean_over_images: bool = False
    mosaic: int = 1
    """images of the dataset that the library makes one of"""
    before_steps: Callable[[Settings], int] = lambda settings: 0
    """bytes that the library's own preparations may leave in the cache, under these settings"""

    @property
    def settings(self) -> tuple[Setting, ...]:
        plain = {name: value for name, value in self.usual.items() if not callable(value)}
        common = training_settings(plain)
        return (
            *self.own,
            *(
                replace(each, follows=self.usual[each.name]) if callable(self.usual.get(each.name)) else each
                for each in common
            ),
        )

    def trace(self, request: TraceRequest) -> Timeline:
        settings = self._with_images(request)
        told = request.without_known_objects(settings)
        step = replace(self.make(settings), name=self.name).trace(replace(request, settings=settings, batch=None))
        notes = (*self.notes, *note_on_objects(told.get("boxes", 0)), *step.about.notes)
        return replace(step, about=replace(step.about, notes=notes, before_steps=self.before_steps(settings)))

    def batch_rule(self, settings: Settings) -> BatchRule:
        size = settings.of("image size")
        words = f"{self.name} trains on batches of equal images" + (f", {size[0]}x{size[1]}" if size else "")
        if not settings.name_of("boxes"):
            return BatchRule(settings.images, words, size=size, same=True)
        parts = f", each a mosaic of {self.mosaic}" if self.mosaic > 1 else ""
        words = f"{words}{parts}, all taken to be as crowded as the fullest of them"
        return BatchRule(settings.images, words, size=size, exact=False)

    def _with_images(self, request: TraceRequest) -> Settings:
        """The settings with the images of a dataset's batch: targets are padded to those of the fullest image."""
        if request.batch is None:
            return request.settings
        settings, images = request.settings, request.batch.images
        boxes = self.mosaic * max(1, *(image.objects for image in images))
        return settings.with_values({settings.name_of("batch"): len(images), settings.name_of("boxes"): boxes})

    def torch_pieces(self, settings: Settings) -> tuple[TorchJob, Settings]:
        """The job in plain pieces, and the settings of its training."""
        return replace(self.make(settings), name=self.name), settings

    def validates(self, settings: Settings) -> bool:
        return self.make(settings).validate is not None

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        from oomproof.sources.torch.knobs import training_knobs

        general = training_knobs(settings, about, mean_over_images=self.mean_over_images, matching=False)
        return (*general, *_size_knob(settings))

    @property
    def place(self) -> Path:
        return Path(self.name.partition(":")[2].replace("/", "-") + SUFFIX)

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        return write_training_code(settings, path, self.code(settings))


def _size_knob(settings: Settings) -> tuple[Knob, ...]:
    present = settings.get("image_size")
    if not isinstance(present, tuple):
        return ()
    options = [Option(present, {"image_size": present})]
    for size, factor in smaller_sizes(present, likely_divisor(present)):
        options.append(Option(size, {"image_size": size}, harm_of_size(factor)))
    if len(options) == 1:
        return ()
    return (Knob("image_size", tuple(options), "different", "fine detail is lost first", role="image size"),)


def size_setting(size: tuple[int, int], help_text: str = "height x width of the images, in pixels") -> Setting:
    return Setting("image_size", size, help_text, given_as="--image-size {value}")


def batch_setting(batch: int) -> Setting:
    return Setting("batch", batch, "images per step on one GPU", given_as="--batch {value}")
