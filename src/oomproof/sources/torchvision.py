"""torchvision models by name, trained as torchvision's reference scripts do."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from types import ModuleType

from oomproof.errors import InputError
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Progress, Setting, Settings
from oomproof.sources.torch_job import TorchJob, training_settings

_TASKS = {"detection": "detection", "segmentation": "segmentation", "": "classification"}
_COCO, _PERSON, _VOC, _IMAGENET = 91, 2, 21, 1000
_PRETRAINED = ("none", "backbone", "default")
_WEIGHTS = (
    "pretrained weights: none, the backbone's, or the whole model's (default). They are never loaded, but with them "
    "torchvision freezes normalisation and early layers of detectors; other models are trained whole either way"
)


@dataclass(frozen=True)
class TorchvisionJob:
    """``torchvision:NAME``"""

    model: str
    task: str

    @property
    def name(self) -> str:
        return f"torchvision:{self.model}"

    @property
    def settings(self) -> tuple[Setting, ...]:
        from oomproof.sources.torchvision_data import default_size

        batch, size = default_size(self.model, self.task)
        classes = {"detection": _COCO, "segmentation": _VOC, "classification": _IMAGENET}[self.task]
        if self.model.startswith("keypointrcnn"):
            classes = _PERSON
        own = [
            Setting("batch", batch, "images per step on one GPU"),
            Setting("image_size", size, "height x width of the images as the data loader gives them, in pixels"),
            Setting("classes", classes, "number of classes (background included for detection)"),
            Setting("weights", "backbone" if self.task == "detection" else "none", _WEIGHTS, _PRETRAINED),
        ]
        if self.task == "detection":
            own += [
                Setting("boxes", 20, "annotated objects in every image"),
                Setting(
                    "trainable_layers", -1, "backbone layers that are trained, from the end; -1: torchvision's default"
                ),
            ]
        if self.task == "segmentation" and not self.model.startswith("lraspp"):  # which has no auxiliary classifier
            own.append(Setting("aux_loss", True, "train the auxiliary classifier too, as the reference script does"))
        defaults = {"zero_grad": "before_backward" if self.task != "classification" else "before_forward"}
        return (*own, *training_settings(defaults))

    def trace(self, settings: Settings, progress: Progress) -> Timeline:
        return self.with_settings(settings).trace(settings, progress)

    def with_settings(self, settings: Settings) -> TorchJob:
        """The job in plain pieces, as ``settings`` have it."""
        from oomproof.sources import torchvision_data as data

        make = {"detection": data.detection, "segmentation": data.segmentation, "classification": data.classification}
        return replace(make[self.task](self.model, settings), name=self.name)


def open_torchvision(name: str) -> TorchvisionJob:
    models = model_names()
    if name not in models:
        near = difflib.get_close_matches(name, models, 3, 0.5)
        raise InputError(
            f"torchvision has no model '{name}'"
            + (f"; did you mean {' or '.join(near)}?" if near else "")
            + " (`python -c 'import torchvision; print(torchvision.models.list_models())'` lists them)"
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
        import torchvision
    except ImportError as error:
        raise InputError(
            "torchvision jobs need PyTorch and torchvision, which are not installed here: pip install 'oomproof[torch]'"
        ) from error
    return torchvision  # type: ignore[no-any-return]
