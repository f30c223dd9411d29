"""A batch as Ultralytics' loaders give it, made up: images, and objects in all of them."""

from __future__ import annotations

from typing import Any

from oomproof.sources.job import Settings

_KEYPOINTS = (17, 3)
"""COCO's persons: x, y and whether it is seen"""
_MASK_RATIO = 4
_LEAST, _MOST = 0.02, 0.3
"""sides of boxes, as parts of the image's: spread evenly, a guess"""


def make_batch(task: str, settings: Settings) -> dict[str, Any]:
    import torch

    images, (height, width) = settings["batch"], settings["image_size"]
    img = torch.rand(images, 3, height, width)
    if task == "classify":
        return {"img": img, "cls": torch.randint(0, settings["classes"], (images,))}
    count = images * settings["boxes"]
    sides = torch.rand(count, 2) * (_MOST - _LEAST) + _LEAST
    centres = torch.rand(count, 2) * (1 - sides) + sides / 2
    batch: dict[str, Any] = {
        "img": img,
        "batch_idx": torch.arange(images).repeat_interleave(settings["boxes"]).float(),
        "cls": torch.randint(0, settings["classes"], (count, 1)).float(),
        "bboxes": torch.cat([centres, sides], 1),
    }
    if task == "segment":
        size = (images, height // _MASK_RATIO, width // _MASK_RATIO)
        batch["masks"] = torch.randint(0, settings["boxes"] + 1, size).float()
        batch["sem_masks"] = torch.randint(0, settings["classes"], size)
    if task == "pose":
        batch["keypoints"] = torch.rand(count, *_KEYPOINTS)
    if task == "obb":
        batch["bboxes"] = torch.cat([batch["bboxes"], torch.rand(count, 1)], 1)
    return batch
