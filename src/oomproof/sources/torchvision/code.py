"""The lines that build a torchvision model as settings have it, for a user to paste."""

from __future__ import annotations

from typing import Any

from oomproof.sources.job import Settings
from oomproof.sources.torchvision import families
from oomproof.sources.torchvision.models import backbone_arguments, builder_arguments, other_input

_LOSSES = {
    "detection": ["loss = lambda model, batch: model(*batch)  # images and targets; a dict of losses is added up"],
    "segmentation": ["loss = lambda model, batch: criterion(model(batch[0]), batch[1])  # with your criterion"],
    "classification": [
        "loss = lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1])",
    ],
}


def model_code(name: str, task: str, settings: Settings) -> list[str]:
    """From the imports to the loss; every line runs as it stands, where torchvision may download its weights."""
    imports = ["import torch", "import torchvision"]
    # Every argument is said, None too: without a word, detectors and segmenters load a pretrained backbone.
    lines = [f"model = torchvision.models.get_model({name!r}, {_arguments(builder_arguments(name, task, settings))})"]
    if task == "detection":
        _backbone(name, settings, imports, lines)
        _anchors(name, settings, imports, lines)
        _input(name, settings, lines)
    return [*imports, "", *lines, *_LOSSES[task]]


def _backbone(name: str, settings: Settings, imports: list[str], lines: list[str]) -> None:
    arguments = backbone_arguments(name, settings)
    if not arguments:
        return
    imports.append("from torchvision.models.detection.backbone_utils import resnet_fpn_backbone")
    text = _arguments(arguments)
    if arguments["weights"] is None:
        text += ", norm_layer=torch.nn.BatchNorm2d"
    if families.skips_first_level(name):
        imports.append("from torchvision.ops.feature_pyramid_network import LastLevelP6P7")
        text += ", returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256)"
    lines.append(f"model.backbone = resnet_fpn_backbone({text})")


def _anchors(name: str, settings: Settings, imports: list[str], lines: list[str]) -> None:
    factor = settings.get("anchor_scale", 1.0)
    if factor == 1.0 or not families.has_anchor_scale(name):
        return
    imports.append("from torchvision.models.detection.anchor_utils import AnchorGenerator")
    owner = "model.rpn" if families.is_rcnn(name) else "model"
    lines += [
        f"old = {owner}.anchor_generator",
        f"sizes = tuple(tuple(size * {factor} for size in level) for level in old.sizes)",
        f"{owner}.anchor_generator = AnchorGenerator(sizes, old.aspect_ratios)",
    ]


def _input(name: str, settings: Settings, lines: list[str]) -> None:
    if size := other_input(name, settings):
        height, width = size
        lines += [
            f"model.transform.fixed_size = ({width}, {height})  # width and height that every image is resized to",
            "model.anchor_generator.steps = None  # anchors spread over each feature map, whatever its size",
        ]


def _arguments(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
