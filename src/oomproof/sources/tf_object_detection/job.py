"""A training of the TensorFlow Object Detection API as a Job: fields of its pipeline.config are its settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oomproof.data.annotations.dataset import Dataset
from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.batch_spec import BatchSpec
from oomproof.memory.cards.devices import Device
from oomproof.memory.parallel import Parallel, with_exchange
from oomproof.memory.timeline import Timeline
from oomproof.memory.validation import Validation
from oomproof.sources.job import Job, Knob, Setting, Settings, TraceRequest
from oomproof.sources.settings import runtime_settings
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.dead_fields import tensorflow_of
from oomproof.sources.tf_object_detection.fields import (
    BATCH,
    FREEZE,
    FREEZE_PATH,
    OPTIMIZERS,
    has_tasks,
    memory_fields,
    optimizer_of,
    refuse_unavailable,
    require_label_map,
    require_model,
    split_patterns,
)
from oomproof.sources.tf_object_detection.planned_values import find_planned_values
from oomproof.sources.tf_object_detection.sizes import Size, has_size, size_of
from oomproof.trace.tf_object_detection.request import StepRequest

_UNKNOWN_CARD = "8.0"
_ONE_STAGE = ("ssd", "center_net")
_PER_REGION = ("box head", "mask head")
"""stages of Faster and Mask R-CNN whose memory goes with regions, not with pixels"""
NO_SIZE = (0, 0)
"""where the resizer leaves images as they are, and the user must say how large they get"""


@dataclass(frozen=True)
class ObjectDetectionJob(Job):
    """A config that the API would train with."""

    name: str
    config: Config
    records: Dataset | None = None
    """what is trained on, where it was read"""
    told: tuple[str, ...] = ()
    """what a script leaves open that makes the config"""

    traces_take_long = one_what_if_at_a_time = True
    validates_apart = (
        "max_total_detections and eval_input_reader's max_number_of_boxes make fewer masks; smaller images, "
        "eval_config.batch_size: 1; or evaluate on the CPU (CUDA_VISIBLE_DEVICES=-1) or on another card"
    )

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
            *self._more_settings(),
            Setting("boxes", 0, "objects in every image; 0: half of max_number_of_boxes expected, all of it at worst"),
            Setting("gpus", 1, "GPUs that share train_config.batch_size"),
            *runtime_settings({}, of_tensorflow=True),
        )  # fmt: skip

    def _more_settings(self) -> list[Setting]:
        """What only some configs have."""
        from oomproof.sources.tf_object_detection.fpn import SETTING, pyramids_for

        found = []
        if pyramids := pyramids_for(self.config):
            present = self.config.value("model.ssd.feature_extractor.type")
            help = "model.ssd.feature_extractor.type; one with a pyramid brings its anchors and head along"
            found.append(Setting(SETTING, present, help, (present, *pyramids)))
        if tensorflow_of(self.config) == 1:
            help = "train_config.freeze_variables: patterns with commas between them, which are not trained"
            found.append(Setting(FREEZE, self.config.value(FREEZE_PATH), help, read=split_patterns))
        return found

    def describe_other_ways(self, settings: Settings) -> tuple[str, ...]:
        from oomproof.sources.tf_object_detection.lighter import describe_lighter

        lighter = describe_lighter(self.config, min(settings["image_size"]))
        if settings[BATCH] <= settings["gpus"] or tensorflow_of(self.config) == 1 or self.name.endswith(".py"):
            return lighter
        command = f"oomproof run {shlex.quote(self.name)} --model-dir FOLDER --on DEVICE"
        way = f"`{command}` trains the whole batch in micro-batches, which the API cannot; it says first if that fits"
        return way, *lighter

    def trace(self, request: TraceRequest) -> Timeline:
        from oomproof.sources.tf_object_detection.host import describe_host
        from oomproof.sources.tf_object_detection.notes import notes_of
        from oomproof.trace.tf_object_detection.process import trace_api_step

        if request.validation is not None:
            return self._trace_evaluation(request, request.validation)
        settings, batch = request.settings, request.batch
        timeline = trace_api_step(self.step_request(settings, request.device, batch), self.name, request.progress)
        if settings["gpus"] > 1:
            timeline = with_exchange(timeline, Parallel(settings["gpus"], "packs"))
        data = describe_host(self.config, self._add_image_size(settings, batch), self.records)
        told = (
            *self.told,
            *notes_of(self.config, self._add_image_size(settings, batch), batch),
            *timeline.about.notes,
            *data["notes"],
        )
        model = self.config.which("model")
        heads = [owner for owner in timeline.owners if model == "faster_rcnn" and owner.startswith(_PER_REGION)]
        known = {"job": self.name, "settings": settings, "model": model, "per_box": frozenset(heads)}
        return replace(timeline, about=replace(timeline.about, **{**data, **known, "notes": told}))

    def _trace_evaluation(self, request: TraceRequest, how: Validation) -> Timeline:
        from oomproof.sources.tf_object_detection.evaluated import (
            describe_evaluation,
            notes_of_evaluation,
            with_full_masks,
        )
        from oomproof.trace.tf_object_detection.process import trace_api_step

        of = describe_evaluation(self.config, request.settings, how, request.batch)
        asked = self.step_request(request.settings, request.device)
        asked = replace(asked, height=of.size[0], width=of.size[1], batch=of.images, boxes=(), evaluation=True)
        timeline = with_full_masks(trace_api_step(asked, self.name, request.progress), of)
        notes = (*notes_of_evaluation(of), *timeline.about.notes)
        known: dict[str, Any] = {"job": self.name, "settings": request.settings, "notes": notes}
        return replace(timeline, about=replace(timeline.about, **known))

    def price_data(self, settings: Settings) -> Callable[[Settings], Mapping[str, Any]]:
        from oomproof.sources.tf_object_detection.host import describe_host

        return lambda other: {**describe_host(self.config, other, self.records), "notes": ()}

    def batch_rule(self, settings: Settings) -> BatchRule:
        from oomproof.sources.tf_object_detection.batches import rule_of

        self._check(settings)
        return rule_of(self.config, settings)

    def data_files(self) -> tuple[Path, ...]:
        from oomproof.sources.tf_object_detection.records import files_of

        return files_of(self.config)

    def with_data(self, dataset: Dataset) -> ObjectDetectionJob:
        return replace(self, records=dataset)

    def _add_image_size(self, settings: Settings, batch: BatchSpec | None) -> Settings:
        """With the size of a batch's images, where a batch says it."""
        from oomproof.sources.tf_object_detection.batches import stack

        return settings if batch is None else settings.with_values({"image_size": stack(batch)})

    def step_request(
        self, settings: Mapping[str, Any], device: Device | None = None, batch: BatchSpec | None = None
    ) -> StepRequest:
        """What the child is asked for."""
        from oomproof.sources.tf_object_detection.batches import stack

        share = self._check(settings)
        images = share if batch is None else len(batch.images)
        boxes = (settings["boxes"],) * images if settings["boxes"] else ()
        if batch is not None and settings["unpad_groundtruth_tensors"]:
            boxes = tuple(each.objects for each in batch.images)
        size: Size = settings["image_size"] if batch is None else stack(batch)
        if size == NO_SIZE:
            size = size_of(self.config)  # refuses, with the reason
        planned = self.config.with_values(find_planned_values(self.config, settings))
        version = tensorflow_of(planned) or 2
        capability = device.capability if device is not None else (0, 0)
        return StepRequest(
            planned.text,
            1 if version == 1 else 2,
            *size,
            images,
            boxes,
            ".".join(map(str, capability)) if capability != (0, 0) else _UNKNOWN_CARD,
            many_images="extend" if planned.which("model") in _ONE_STAGE and not has_tasks(planned) else "repeat",
        )

    def _check(self, settings: Mapping[str, Any]) -> int:
        """The images of one GPU, where the settings go together."""
        refuse_unavailable(self.config, tensorflow_of(self.config) or 2)
        require_label_map(self.config)
        if settings["boxes"] > settings["max_number_of_boxes"]:
            raise InputError(
                f"boxes={settings['boxes']} is more than max_number_of_boxes={settings['max_number_of_boxes']}: the "
                "API drops the rest; raise it too"
            )
        return Parallel(settings["gpus"]).share(settings[BATCH], "train_config.batch_size")

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
