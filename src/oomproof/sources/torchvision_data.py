"""The pieces of torchvision jobs: models as their builders make them, and batches of the right form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torchvision
from torch.nn.functional import cross_entropy

from oomproof.errors import InputError
from oomproof.sources.job import Settings
from oomproof.sources.torch_job import TorchJob

_KEYPOINTS = 17
_SMALLEST_BOX = 8.0
_WARN_OF_INITIAL_WEIGHTS = ("googlenet", "inception_v3")


def default_size(model: str, task: str) -> tuple[int, tuple[int, int]]:
    """(batch, (height, width)) of the reference training script."""
    if task == "detection":
        if model.startswith("ssd300"):
            return 4, (300, 300)
        if model.startswith("ssdlite320"):
            return 24, (320, 320)
        if "_320_" in model:
            return 2, (320, 640)
        return 2, (800, 1333)
    if task == "segmentation":
        return 4, (480, 480)
    side = 299 if model == "inception_v3" else 224
    return 32, (side, side)


def classification(name: str, settings: Settings) -> TorchJob:
    def model() -> torch.nn.Module:
        arguments = _built_for(name, settings) | {"num_classes": settings["classes"]}
        return torchvision.models.get_model(name, weights=None, **arguments)

    def batch() -> Any:
        return _images(settings), torch.randint(0, settings["classes"], (settings["batch"],))

    return TorchJob(model, batch, lambda net, data: _mixed(net(data[0]), data[1]))


def _built_for(name: str, settings: Settings) -> dict[str, Any]:
    """What some builders must know or be spared."""
    height, width = settings["image_size"]
    if name in _WARN_OF_INITIAL_WEIGHTS:
        return {"init_weights": False}
    if name.startswith("maxvit"):
        return {"input_size": (height, width)}
    if name.startswith("vit_"):
        if height != width:
            raise InputError(f"{name} takes square images; image_size is {height}x{width}")
        return {"image_size": height}
    return {}


def segmentation(name: str, settings: Settings) -> TorchJob:
    def model() -> torch.nn.Module:
        return torchvision.models.get_model(
            name,
            weights=None,
            weights_backbone=None,
            num_classes=settings["classes"],
            aux_loss=settings.get("aux_loss", False),
        )

    def batch() -> Any:
        height, width = settings["image_size"]
        return _images(settings), torch.randint(0, settings["classes"], (settings["batch"], height, width))

    return TorchJob(model, batch, lambda net, data: _mixed(net(data[0]), data[1]))


def detection(name: str, settings: Settings) -> TorchJob:
    return TorchJob(
        lambda: _detector(name, settings),
        lambda: ([_image(settings) for _ in range(settings["batch"])], _targets(name, settings)),
        lambda net, data: net(*data),
    )


def _detector(name: str, settings: Settings) -> torch.nn.Module:
    weights, layers = settings["weights"], settings["trainable_layers"]
    height, width = settings["image_size"]
    arguments: dict[str, Any] = {
        "weights": "DEFAULT" if weights == "default" else None,
        "weights_backbone": "DEFAULT" if weights == "backbone" else None,
        "num_classes": settings["classes"],
    }
    if not name.startswith("ssd"):  # SSD is built for one input size and resizes every image to it
        arguments |= {"min_size": min(height, width), "max_size": max(height, width)}
    if layers >= 0:
        if weights == "none":
            raise InputError(
                f"trainable_layers={layers} has no effect with weights=none: torchvision then trains every layer. "
                "Set weights=backbone or weights=default"
            )
        arguments["trainable_backbone_layers"] = layers
    with _without_loading():
        model: torch.nn.Module = torchvision.models.get_model(name, **arguments)
    return model


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


def _targets(name: str, settings: Settings) -> list[dict[str, torch.Tensor]]:
    (height, width), boxes = settings["image_size"], settings["boxes"]
    noise = torch.Generator().manual_seed(0)
    targets = []
    for _ in range(settings["batch"]):
        room = torch.tensor([width, height], dtype=torch.float32)
        corner = torch.rand(boxes, 2, generator=noise) * room * 0.7
        size = torch.rand(boxes, 2, generator=noise) * room * 0.25 + _SMALLEST_BOX
        target = {
            "boxes": torch.cat([corner, torch.minimum(corner + size, room)], dim=1),
            "labels": torch.randint(1, settings["classes"], (boxes,), generator=noise),
        }
        if name.startswith("maskrcnn"):
            target["masks"] = torch.zeros(boxes, height, width, dtype=torch.uint8)
        if name.startswith("keypointrcnn"):
            spots = corner[:, None] + torch.rand(boxes, _KEYPOINTS, 2, generator=noise) * size[:, None]
            target["keypoints"] = torch.cat([spots, torch.ones(boxes, _KEYPOINTS, 1)], dim=2)
        targets.append(target)
    return targets


def _images(settings: Settings) -> torch.Tensor:
    return torch.rand(settings["batch"], 3, *settings["image_size"])


def _image(settings: Settings) -> torch.Tensor:
    return torch.rand(3, *settings["image_size"])


def _mixed(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    """The main loss and, as the reference scripts weigh them, half of auxiliary ones."""
    if isinstance(outputs, torch.Tensor):
        return cross_entropy(outputs, labels)
    if isinstance(outputs, dict):
        losses = [cross_entropy(outputs["out"], labels, ignore_index=255)]
        losses += [0.5 * cross_entropy(outputs["aux"], labels, ignore_index=255)] if "aux" in outputs else []
        return sum(losses)
    main, *auxiliary = (cross_entropy(output, labels) for output in outputs)
    return main + sum(0.3 * loss for loss in auxiliary)
