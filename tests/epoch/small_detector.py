"""A detector in miniature, with what makes memory follow the data: padding, matching, masks. Datasets to go with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import pad

import oomproof
from oomproof.data.annotations.dataset import Dataset

RESIZED = oomproof.BatchRule(2, "the shorter side becomes 32 to 48", sides=(32, 48), longest=80, divisor=8)
"""images come resized, as from Detectron2's data loader"""
USUAL = (oomproof.ImageSpec(48, 64, 3),) * 2


class SmallDetector(torch.nn.Module):
    """Convolutions over a padded batch; objects are matched with every place image by image, as torchvision does; masks
    are as large as their image."""

    def __init__(self, width: int = 8, masks: bool = False) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, width, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(width, width, 3, padding=1)
        )
        self.head = torch.nn.Conv2d(width, 1, 1)
        self.masks = masks

    def forward(self, images: Sequence[torch.Tensor], boxes: Sequence[torch.Tensor]) -> torch.Tensor:
        height = -(-max(image.shape[1] for image in images) // 8) * 8
        width = -(-max(image.shape[2] for image in images) // 8) * 8
        padded = [pad(image, (0, width - image.shape[2], 0, height - image.shape[1])) for image in images]
        scores = self.head(self.body(torch.stack(padded))).flatten(1)
        places = torch.linspace(0, 1, scores.shape[1])
        loss = scores.square().mean()
        for score, image, objects in zip(scores, images, boxes, strict=True):
            overlap = (places[None] - objects[:, :1]).abs() - objects[:, 1:2]  # objects x places, then gone
            if len(objects):
                loss = loss + (score * overlap.amax(0)).mean()
            if self.masks and len(objects):
                drawn = image[:1].repeat(len(objects), 1, 1) * score.mean()
                loss = loss + drawn.mean()
        return loss


def make_batch(images: Sequence[oomproof.ImageSpec] = USUAL) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    pictures = [torch.rand(3, image.height, image.width) for image in images]
    return pictures, [torch.rand(image.objects, 4) for image in images]


def small_job(width: int = 8, masks: bool = False, rule: oomproof.BatchRule = RESIZED) -> oomproof.TorchJob:
    return oomproof.TorchJob(
        model=lambda: SmallDetector(width, masks),
        batch=make_batch,
        loss=lambda model, batch: model(*batch),
        batches=rule,
        name="small detector",
    )


def make_dataset(sizes: Sequence[tuple[int, int]], objects: Sequence[int]) -> Dataset:
    """Images of these heights and widths, with so many objects each."""
    heights, widths = (np.array(side) for side in zip(*sizes, strict=True))
    first = np.concatenate([[0], np.cumsum(objects)])
    of_objects = np.zeros(first[-1])
    return Dataset(
        path="small.json",
        format="COCO",
        names=tuple(f"{number}.jpg" for number in range(len(sizes))),
        widths=widths,
        heights=heights,
        turned=np.zeros(len(sizes), dtype=bool),
        first=first,
        box_widths=of_objects.astype(np.float32),
        box_heights=of_objects.astype(np.float32),
        vertices=of_objects.astype(np.int64),
        mask_bytes=of_objects.astype(np.int64),
        crowd=of_objects.astype(bool),
    )


def random_dataset(seed: int, images: int) -> Dataset:
    """Of all shapes, a few images crowded."""
    chance = np.random.default_rng(seed)
    sizes = [(int(high), int(wide)) for high, wide in chance.integers(40, 200, (images, 2))]
    objects = chance.geometric(1 / chance.choice([3, 20, 120]), images) - chance.integers(0, 2)
    return make_dataset(sizes, [int(count) for count in objects])
