"""A training of the TensorFlow Object Detection API as a Job: fields of its pipeline.config are its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.cards.devices import Device
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Knob, Setting, Settings, TraceRequest
from oomproof.sources.settings import runtime_settings
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.dead_fields import tensorflow_of
from oomproof.sources.tf_object_detection.fields import BATCH, OPTIMIZERS, memory_fields, optimizer_of, require_model
from oomproof.sources.tf_object_detection.planned import planned_values
from oomproof.sources.tf_object_detection.sizes import Size, has_size, size_of
from oomproof.trace.tf_object_detection.request import StepRequest

_UNKNOWN_CARD = "8.0"
_PER_REGION = ("box head", "mask head")
"""stages of Faster and Mask R-CNN whose memory goes with regions, not with pixels"""
NO_SIZE = (0, 0)
"""where the resizer leaves images as they are, and the user must say how large they get"""


@dataclass(frozen=True)
class ObjectDetectionJob(Job):
    """A config that the API would train with."""

    name: str
    config: Config

    @property
    def settings(self) -> tuple[Setting, ...]:
        config = self.config
        own = [
            Setting(
                each.name,
                config.value(each.path),
                each.help,
                role="batch" if each.name == BATCH else None,
                given_as="--batch {value}" if each.name == BATCH else "",
            )
            for each in memory_fields(config)
        ]
        return (
            *own,
            Setting(
                "image_size", size_of(config) if has_size(config) else NO_SIZE,
                "height x width of the images that the model gets, in pixels",
                given_as="--image-size {value}",
            ),
            Setting("optimizer", optimizer_of(config), "train_config.optimizer, with the present schedule", OPTIMIZERS),
            Setting("boxes", 0, "objects in every image; 0: half of max_number_of_boxes expected, all of it at worst"),
            Setting("gpus", 1, "GPUs that share train_config.batch_size"),
            *runtime_settings({}, of_tensorflow=True),
        )  # fmt: skip

    def trace(self, request: TraceRequest) -> Timeline:
        from oomproof.sources.tf_object_detection.host import describe_host
        from oomproof.sources.tf_object_detection.notes import notes_of
        from oomproof.sources.tf_object_detection.replicas import with_exchange
        from oomproof.trace.tf_object_detection.process import trace_api_step

        request.refuse_batch(self.name)
        settings = request.settings
        timeline = trace_api_step(self.step_request(settings, request.device), self.name, request.progress)
        if settings["gpus"] > 1:
            timeline = with_exchange(timeline)
        data = describe_host(self.config, settings)
        told = (*notes_of(self.config, settings), *timeline.about.notes, *data["notes"])
        model = self.config.which("model")
        heads = [owner for owner in timeline.owners if model == "faster_rcnn" and owner.startswith(_PER_REGION)]
        known = {"job": self.name, "settings": settings, "model": model, "per_box": frozenset(heads)}
        return replace(timeline, about=replace(timeline.about, **{**data, **known, "notes": told}))

    def price_data(self, settings: Settings) -> Callable[[Settings], Mapping[str, Any]]:
        from oomproof.sources.tf_object_detection.host import describe_host

        return lambda other: {**describe_host(self.config, other), "notes": ()}

    def step_request(self, settings: Mapping[str, Any], device: Device | None = None) -> StepRequest:
        """What the child is asked for."""
        images, gpus = settings[BATCH], settings["gpus"]
        if gpus < 1 or images % gpus:
            raise InputError(
                f"batch_size {images} is shared by {gpus} GPUs, which must each get as many images: MirroredStrategy "
                "wants a multiple"
            )
        if settings["boxes"] > settings["max_number_of_boxes"]:
            raise InputError(
                f"boxes={settings['boxes']} is more than max_number_of_boxes={settings['max_number_of_boxes']}: the "
                "API drops the rest; raise it too"
            )
        size: Size = settings["image_size"]
        if size == NO_SIZE:
            size = size_of(self.config)  # refuses, with the reason
        version = tensorflow_of(self.config) or 2
        capability = device.capability if device is not None else (0, 0)
        return StepRequest(
            self.config.with_values(planned_values(self.config, settings)).text,
            1 if version == 1 else 2,
            *size,
            images // gpus,
            settings["boxes"],
            ".".join(map(str, capability)) if capability != (0, 0) else _UNKNOWN_CARD,
        )

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        from oomproof.sources.tf_object_detection.knobs import knobs_of

        return knobs_of(self.config, settings, about)

    @property
    def place(self) -> Path:
        if self.config.path is None:
            raise InputError(f"{self.name} was not read from a file: say where it should go, --write FILE")
        return self.config.path

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        from oomproof.sources.tf_object_detection.write import write_config

        return write_config(self.config, settings, target or self.place)


def open_config(config: Config, name: str) -> ObjectDetectionJob:
    require_model(config)
    return ObjectDetectionJob(name, config)
