"""torchvision models by name, trained as torchvision's reference scripts do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from oomproof.errors import InputError, did_you_mean
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.batch_spec import MOST_OBJECTS, OBJECTS_HELP, OTHER_OBJECTS, BatchSpec
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import ASSUMED, SUFFIX, Job, Knob, Setting, Settings, TraceRequest
from oomproof.sources.torch.job import TorchJob, training_settings
from oomproof.sources.torch.training_code import write_training_code
from oomproof.sources.torchvision import families

_TASKS = {"detection": "detection", "segmentation": "segmentation", "": "classification"}
_COCO, _PERSON, _VOC, _IMAGENET = 91, 2, 21, 1000
_LISTED = 20
"""models that a listing can still name one by one"""
_LOADED_SIZE = "height x width of the images as the data loader gives them, in pixels"
_FIXED_SIZE = "height x width that the network is built for, in pixels; it resizes all images to them"
_PRETRAINED = ("none", "backbone", "default")
_WEIGHTS = (
    "pretrained weights: none, the backbone's, or the whole model's (default). They are never loaded, but with them "
    "torchvision freezes normalisation and early layers of detectors; other models are trained whole either way"
)


@dataclass(frozen=True)
class TorchvisionJob(Job):
    """``torchvision:NAME``"""

    model: str
    task: str

    @property
    def name(self) -> str:
        return f"torchvision:{self.model}"

    @property
    def settings(self) -> tuple[Setting, ...]:
        batch, size = families.default_size(self.model, self.task)
        classes = {"detection": _COCO, "segmentation": _VOC, "classification": _IMAGENET}[self.task]
        if self.model.startswith("keypointrcnn"):
            classes = _PERSON
        own = [
            self._model_setting(),
            Setting("batch", batch, "images per step on one GPU", basis=ASSUMED, given_as="--batch {value}"),
            Setting(
                "image_size",
                size,
                _FIXED_SIZE if families.has_fixed_input(self.model) else _LOADED_SIZE,
                basis="the model's own" if families.has_fixed_input(self.model) else ASSUMED,
                given_as="--image-size {value}",
                follows=lambda values: self._usual_size(values["model"]),
            ),
            Setting("classes", classes, "number of classes (background included for detection)"),
            Setting("weights", "backbone" if self.task == "detection" else "none", _WEIGHTS, _PRETRAINED),
        ]
        if self.task == "detection":
            own += [
                Setting("boxes", MOST_OBJECTS, OBJECTS_HELP, basis=ASSUMED, usual=OTHER_OBJECTS),
                Setting(
                    "trainable_layers", -1, "backbone layers that are trained, from the end; -1: torchvision's default"
                ),
                *_detector_settings(self.model),
            ]
        if families.has_width(self.model):
            own.append(Setting("width_mult", 1.0, "factor on the number of channels of every layer"))
        if self.task == "segmentation" and not self.model.startswith("lraspp"):  # which has no auxiliary classifier
            own.append(Setting("aux_loss", True, "train the auxiliary classifier too, as the reference script does"))
        defaults = {"zero_grad": "before_backward" if self.task != "classification" else "before_forward"}
        return (*own, *training_settings(defaults))

    def trace(self, request: TraceRequest) -> Timeline:
        from oomproof.sources.torchvision.notes import notes

        settings = request.settings
        if request.validation is not None:  # reference scripts validate detectors and segmenters with one image
            usual = settings["batch"] if self.task == "classification" else 1
            settings = settings.with_values({"batch": request.validation.batch or usual})
        job = self.with_settings(settings, request.batch)
        step = job.trace(replace(request, settings=settings, batch=None))
        told = (*notes(self, self._choose_model(settings), request.without_known_objects(settings)), *step.about.notes)
        # Its reference scripts stack images by PyTorch's own collate function, or hand them over as lists.
        return replace(step, about=replace(step.about, notes=told, stacked_by_workers=False))

    def torch_pieces(self, settings: Settings) -> tuple[TorchJob, Settings]:
        """The job in plain pieces, and the settings of its training."""
        return self.with_settings(settings), settings

    def with_settings(self, settings: Settings, batch: BatchSpec | None = None) -> TorchJob:
        """The job in plain pieces, as ``settings`` have it; detectors take images of their own sizes."""
        from oomproof.sources.torchvision import data

        model = self._choose_model(settings)
        if self.task == "detection":
            return replace(data.detection(model, settings, batch), name=self.name)
        if batch is not None:
            raise InputError(f"{self.name} takes batches of equal images: say their number and size instead")
        make = data.segmentation if self.task == "segmentation" else data.classification
        return replace(make(model, settings), name=self.name)

    def batch_rule(self, settings: Settings) -> BatchRule:
        if self.task != "detection":
            size = settings["image_size"]
            taken = "crops of random parts, resized" if self.task == "classification" else "crops, padded"
            words = f"{taken} to {size[0]}x{size[1]}, as in torchvision's reference script"
            return BatchRule(settings["batch"], words, size=size, same=True)
        from oomproof.sources.torchvision.batches import batch_rule

        return batch_rule(self._choose_model(settings), settings)

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        from oomproof.sources.torch.knobs import training_knobs
        from oomproof.sources.torchvision.knobs import knobs

        model = self._choose_model(settings)
        mean = families.averages_over_images(model, self.task)
        matching = families.matches_by_overlap(model, self.task)
        general = training_knobs(settings, about, mean_over_images=mean, matching=matching)
        return (*general, *knobs(model, self.task, settings))

    @property
    def place(self) -> Path:
        return Path(f"{self.model}{SUFFIX}")

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        from oomproof.sources.torchvision.code import model_code

        return write_training_code(settings, path, model_code(self._choose_model(settings), self.task, settings))

    def _usual_size(self, model: str) -> tuple[int, int]:
        """A fixed input comes with its model; all others take whatever images they are given."""
        fixed = families.has_fixed_input(model) or families.has_fixed_input(self.model)
        return families.default_size(model if fixed else self.model, self.task)[1]

    def _model_setting(self) -> Setting:
        same = self._same_outputs()
        text = "the model to train, or another one with the same outputs; settings that it does not have are left alone"
        return Setting("model", self.model, text, same if len(same) <= _LISTED else ())

    def _choose_model(self, settings: Settings) -> str:
        model, same = str(settings.get("model", self.model)), self._same_outputs()
        if model not in same:
            raise InputError(
                f"model must be one that gives {families.outputs(self.model, self.task)}, as {self.model} does; "
                f"got '{model}'{did_you_mean(model, same)}"
            )
        return model

    def _same_outputs(self) -> tuple[str, ...]:
        wanted = families.outputs(self.model, self.task)
        return tuple(name for name, task in model_names().items() if families.outputs(name, task) == wanted)


def _detector_settings(model: str) -> list[Setting]:
    own = []
    if families.is_rcnn(model):
        own += [
            Setting("roi_samples", families.ROI_SAMPLES, "regions of each image that the heads are trained on"),
            Setting("proposals", families.PROPOSALS, "proposals of each image that are left after NMS in training"),
        ]
    if families.has_anchor_scale(model):
        own.append(Setting("anchor_scale", 1.0, "factor on the sizes of the anchors: 0.5 for images of half the side"))
    if families.has_backbone(model):
        text = "the ResNet under the feature pyramid"
        own.append(Setting("backbone", families.BACKBONES[0], text, families.BACKBONES))
    return own


def open_torchvision(name: str) -> TorchvisionJob:
    models = model_names()
    if name not in models:
        raise InputError(
            f"torchvision has no model '{name}'{did_you_mean(name, models)} "
            "(`python -c 'import torchvision; print(torchvision.models.list_models())'` lists them)"
        )
    return TorchvisionJob(name, models[name])


def model_names() -> dict[str, str]:
    """Every detection, segmentation and classification model of the installed torchvision, and its task."""
    models = _torchvision().models
    listed = {
        name: task
        for folder, task in _TASKS.items()
        for name in models.list_models(getattr(models, folder) if folder else models)
    }
    return listed


def _torchvision() -> ModuleType:
    try:
        from oomproof.trace.torch.around.without_dynamo import without_dynamo

        with without_dynamo():
            import torchvision
    except ImportError as error:
        raise InputError(
            "torchvision jobs need PyTorch and torchvision, which are not installed here: pip install 'oomproof[torch]'"
        ) from error
    return torchvision  # type: ignore[no-any-return]
