"""The pieces of torchvision jobs: the model, batches of the right form, and the loss of the reference scripts."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from oomproof.memory.batch_spec import BatchSpec, make_up
from oomproof.sources.job import Settings
from oomproof.sources.torch.job import TorchJob
from oomproof.sources.torchvision.models import build_model

_KEYPOINTS = 17
_SMALLEST_BOX = 8.0


def classification(name: str, settings: Settings) -> TorchJob:
    def batch() -> Any:
        return _images(settings), torch.randint(0, settings["classes"], (settings["batch"],))

    return TorchJob(
        lambda: build_model(name, "classification", settings),
        batch,
        lambda net, data: _mix_losses(net(data[0]), data[1]),
        validate=lambda net, data: net(data[0]),
    )


def segmentation(name: str, settings: Settings) -> TorchJob:
    def batch() -> Any:
        height, width = settings["image_size"]
        return _images(settings), torch.randint(0, settings["classes"], (settings["batch"], height, width))

    return TorchJob(
        lambda: build_model(name, "segmentation", settings),
        batch,
        lambda net, data: _mix_losses(net(data[0]), data[1]),
        validate=lambda net, data: net(data[0]),
    )


def detection(name: str, settings: Settings, given: BatchSpec | None = None) -> TorchJob:
    spec = given or make_up(settings["batch"], settings["image_size"], settings["boxes"])
    return TorchJob(
        lambda: build_model(name, "detection", settings),
        lambda: ([torch.rand(3, each.height, each.width) for each in spec.images], _targets(name, settings, spec)),
        lambda net, data: net(*data),
        validate=lambda net, images: net(images),  # the reference script leaves targets on the host
        validation_batch=lambda: [torch.rand(3, each.height, each.width) for each in spec.images],
    )


def _targets(name: str, settings: Settings, spec: BatchSpec) -> list[dict[str, torch.Tensor]]:
    noise = torch.Generator().manual_seed(0)
    targets = []
    for image in spec.images:
        height, width, boxes = image.height, image.width, image.objects
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


def _mix_losses(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    """The main loss and, as the reference scripts weigh them, half of auxiliary ones."""
    if isinstance(outputs, torch.Tensor):
        return cross_entropy(outputs, labels)
    if isinstance(outputs, dict):
        losses = [cross_entropy(outputs["out"], labels, ignore_index=255)]
        losses += [0.5 * cross_entropy(outputs["aux"], labels, ignore_index=255)] if "aux" in outputs else []
        return sum(losses)
    main, *auxiliary = (cross_entropy(output, labels) for output in outputs)
    return main + sum(0.3 * loss for loss in auxiliary)
