"""A ViTDet training as a Job: ``COCO/mask_rcnn_vitdet_b_100ep.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.batch_spec import note_on_objects
from oomproof.memory.timeline import Timeline
from oomproof.sources.detectron2.notes import find_crowd, note_full_samplers
from oomproof.sources.detectron2.validation import describe_validation, validation_rule
from oomproof.sources.detectron2.vitdet.published import Vitdet, find_vitdet
from oomproof.sources.detectron2.vitdet.settings import BATCH, images_per_gpu, list_settings, read_values
from oomproof.sources.job import SUFFIX, Job, Knob, Setting, Settings, TraceRequest


@dataclass(frozen=True)
class VitdetJob(Job):
    """``text`` is what the user wrote for the config."""

    text: str
    config: Vitdet

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def settings(self) -> tuple[Setting, ...]:
        return list_settings(self.config)

    def trace(self, request: TraceRequest) -> Timeline:
        from oomproof.sources.detectron2.vitdet.pieces import make_pieces

        settings = request.settings
        job = make_pieces(self.config, settings, request.batch, request.validation)
        step = job.trace(replace(request, batch=None))
        if request.validation is None:
            told = self._notes(request.without_known_objects(settings))
        else:
            told = describe_validation(read_values(self.config, settings), request.batch)
        notes = (*told, *step.about.notes)
        # Workers hand over lists of images; the model stacks them on the device.
        return replace(step, about=replace(step.about, notes=notes, settings=settings, stacked_by_workers=False))

    def torch_pieces(self, settings: Settings) -> tuple[Any, Settings]:
        """The job in plain pieces, and the settings of its training."""
        from oomproof.sources.detectron2.vitdet.pieces import make_pieces

        return make_pieces(self.config, settings), settings

    def batch_rule(self, settings: Settings) -> BatchRule:
        size = settings["image_size"]
        words = (
            f"large-scale jitter crops images to {size[0]}x{size[1]}, and the model pads smaller ones to it; crops "
            "that lose objects are not counted on"
        )
        return BatchRule(images_per_gpu(settings), words, size=size, empty=False, exact=False)

    def validation_rule(self, settings: Settings) -> BatchRule:
        return validation_rule(read_values(self.config, settings))

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        from oomproof.sources.detectron2.vitdet.knobs import list_knobs

        return list_knobs(settings, about)

    @property
    def place(self) -> Path:
        return Path(PurePosixPath(self.config.name).stem + SUFFIX)

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        from oomproof.sources.detectron2.vitdet.code import write_code

        return write_code(self.config, settings)

    def _notes(self, settings: Any) -> tuple[str, ...]:
        found = []
        if not self.text.startswith(("COCO", "LVIS")) and self.config.dataset not in self.text:
            found.append(f"{self.text} is taken as {self.config.name} of Detectron2's projects/ViTDet")
        images = images_per_gpu(settings)
        if settings["gpus"] == 1 and images == self.config.values["SOLVER.IMS_PER_BATCH"]:
            found.append(
                f"{BATCH} {images} is all on one GPU; --gpus N shares it among several (published figures: 64 GPUs)"
            )
        dataset, crowd = find_crowd(self.config.values["DATASETS.TRAIN"])
        if crowd and settings["boxes"] == crowd:
            found.append(
                f"{crowd} objects in every image: about as many as the fullest of {dataset} has, read off published "
                "figures; give --data with its annotations, or --set boxes=N"
            )
        found += note_on_objects(settings["boxes"])
        found.append(note_full_samplers(read_values(self.config, settings)))
        found.append("a blueprint of Detectron2's model was traced, not Detectron2 itself")
        return tuple(found)


def open_vitdet(text: str, pairs: Sequence[str] = ()) -> VitdetJob:
    config = find_vitdet(text)
    if pairs:
        raise InputError(
            f"'{pairs[0]}': pairs KEY VALUE are for YAML configs; {config.name} is a LazyConfig, whose settings are "
            f"given as --set {BATCH}=8"
        )
    return VitdetJob(text, config)
