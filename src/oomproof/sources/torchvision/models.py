"""torchvision's models as their builders make them with pretrained weights, though none are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torchvision
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from oomproof.errors import CannotDo, InputError
from oomproof.sources.job import Settings
from oomproof.sources.torchvision import families
from oomproof.sources.torchvision.families import default_size

_WARN_OF_INITIAL_WEIGHTS = ("googlenet", "inception_v3")
_ALL_LAYERS = 5


def build_model(name: str, task: str, settings: Settings) -> torch.nn.Module:
    """The model; a setting it does not have (after ``model`` was changed) is left alone."""
    arguments = builder_arguments(name, task, settings)
    with _without_loading():
        model: torch.nn.Module = torchvision.models.get_model(name, **arguments)
        if task == "detection":
            _exchange_backbone(model, name, settings)
            _scale_anchors(model, name, settings)
            _build_for_input(model, name, settings)
    return model


def builder_arguments(name: str, task: str, settings: Settings) -> dict[str, Any]:
    """What torchvision's builder is called with, as a user would write it."""
    if task == "detection":
        return _detector_arguments(name, settings)
    if task == "segmentation":
        auxiliary = settings.get("aux_loss", False) and not name.startswith("lraspp")  # which has no such classifier
        return {"weights": None, "weights_backbone": None, "num_classes": settings["classes"], "aux_loss": auxiliary}
    return {"weights": None, **_classifier_arguments(name, settings), "num_classes": settings["classes"]}


def _classifier_arguments(name: str, settings: Settings) -> dict[str, Any]:
    """What some builders must know or be spared."""
    height, width = settings["image_size"]
    if name in _WARN_OF_INITIAL_WEIGHTS:
        return {"init_weights": False}
    if name.startswith("maxvit"):
        return {"input_size": (height, width)}
    if name.startswith("vit_"):
        if height != width:
            raise CannotDo(f"{name} takes square images; image_size is {height}x{width}")
        return {"image_size": height}
    if families.has_width(name) and (factor := settings.get("width_mult", 1.0)) != 1.0:
        if factor <= 0:
            raise InputError(f"width_mult must be above 0, such as 0.75; got {factor}")
        return {"width_mult": factor}
    return {}


def _detector_arguments(name: str, settings: Settings) -> dict[str, Any]:
    weights, layers = settings["weights"], settings["trainable_layers"]
    height, width = settings["image_size"]
    arguments: dict[str, Any] = {
        "weights": "DEFAULT" if weights == "default" else None,
        "weights_backbone": "DEFAULT" if weights == "backbone" else None,
        "num_classes": settings["classes"],
    }
    if not families.has_fixed_input(name):
        arguments |= {"min_size": min(height, width), "max_size": max(height, width)}
    if families.is_rcnn(name):
        arguments |= _sample_arguments(settings)
    if layers >= 0:
        if weights == "none":
            raise CannotDo(
                f"trainable_layers={layers} has no effect with weights=none: torchvision then trains every layer. "
                "Set weights=backbone or weights=default"
            )
        arguments["trainable_backbone_layers"] = layers
    return arguments


def _sample_arguments(settings: Settings) -> dict[str, int]:
    samples = settings.get("roi_samples", families.ROI_SAMPLES)
    proposals = settings.get("proposals", families.PROPOSALS)
    for setting, count in (("roi_samples", samples), ("proposals", proposals)):
        if count < 1:
            raise InputError(f"{setting} must be at least 1; got {count}")
    arguments = {"box_batch_size_per_image": samples} if samples != families.ROI_SAMPLES else {}
    if proposals != families.PROPOSALS:
        arguments["rpn_post_nms_top_n_train"] = proposals
    if proposals > families.CANDIDATES:
        arguments["rpn_pre_nms_top_n_train"] = proposals
    return arguments


def _exchange_backbone(model: torch.nn.Module, name: str, settings: Settings) -> None:
    """Another ResNet under the same pyramid, frozen as the builder freezes its own."""
    if arguments := backbone_arguments(name, settings):
        form: dict[str, Any] = {}
        if families.skips_first_level(name):
            form = {"returned_layers": [2, 3, 4], "extra_blocks": LastLevelP6P7(256, 256)}
        norm = FrozenBatchNorm2d if arguments["weights"] else torch.nn.BatchNorm2d
        model.backbone = resnet_fpn_backbone(**arguments, norm_layer=norm, **form)


def backbone_arguments(name: str, settings: Settings) -> dict[str, Any]:
    """What ``resnet_fpn_backbone`` is called with; nothing where the builder's own backbone stays."""
    backbone = settings.get("backbone", families.BACKBONES[0])
    if backbone == families.BACKBONES[0] or not families.has_backbone(name):
        return {}
    weights, layers = settings["weights"], settings["trainable_layers"]
    if weights == "default":
        raise CannotDo(
            f"weights=default are those of {name} with {families.BACKBONES[0]}; for backbone={backbone} "
            "set weights=backbone"
        )
    if weights == "none":
        return {"backbone_name": backbone, "weights": None, "trainable_layers": _ALL_LAYERS}
    layers = layers if layers >= 0 else families.count_trained_layers(name)
    return {"backbone_name": backbone, "weights": "DEFAULT", "trainable_layers": layers}


def _scale_anchors(model: torch.nn.Module, name: str, settings: Settings) -> None:
    factor = settings.get("anchor_scale", 1.0)
    if factor == 1.0 or not families.has_anchor_scale(name):
        return
    if factor <= 0:
        raise InputError(f"anchor_scale must be above 0, such as 0.5 for images of half the side; got {factor}")
    owner = model.rpn if families.is_rcnn(name) else model
    old = owner.anchor_generator
    sizes = tuple(tuple(size * factor for size in level) for level in old.sizes)
    owner.anchor_generator = AnchorGenerator(sizes, old.aspect_ratios)


def _build_for_input(model: torch.nn.Module, name: str, settings: Settings) -> None:
    """All layers are convolutions: feature maps grow with the input, and heads know anchors per pixel alone."""
    if size := other_input(name, settings):
        height, width = size
        model.transform.fixed_size = (width, height)
        # SSD300's steps are strides that fit an input of 300 alone; without steps torchvision spreads anchors evenly.
        model.anchor_generator.steps = None


def other_input(name: str, settings: Settings) -> tuple[int, int] | None:
    """(height, width) of a fixed input that is not the builder's own; None where the builder's stays."""
    _, usual = default_size(name, "detection")
    height, width = settings["image_size"]
    if not families.has_fixed_input(name) or (height, width) == usual:
        return None
    if min(height, width) < (least := families.least_side(name)):
        raise CannotDo(
            f"{name} cannot be built for images below {least}x{least}: its last feature map would be empty; "
            f"image_size is {height}x{width}"
        )
    return height, width


@contextmanager
def _without_loading() -> Iterator[None]:
    """Builders act as with pretrained weights, but nothing is downloaded or copied: the values do not matter."""
    nothing: dict[str, Any] = {}
    load = torch.nn.Module.load_state_dict

    def skip(self: torch.nn.Module, state: Any, *args: Any, **kwargs: Any) -> Any:
        return None if state is nothing else load(self, state, *args, **kwargs)

    weights = torchvision.models.WeightsEnum
    with (
        patch.object(weights, "get_state_dict", lambda *args, **kwargs: nothing),
        patch.object(torch.nn.Module, "load_state_dict", skip),
    ):
        yield
