"""Whole models: images in, losses out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.sources.detectron2.blueprint.samples import Samples

Inputs = list[dict[str, Any]]
"""for each image: image, instances, and sem_seg or proposals where the model takes them"""
Losses = dict[str, torch.Tensor]


class Detector(nn.Module):
    """What every model begins with: images are normalised and laid into one batch, padded at the right and below."""

    pixel_mean: torch.Tensor
    pixel_std: torch.Tensor

    def __init__(self, config: Mapping[str, Any], backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        for name, key in (("pixel_mean", "MODEL.PIXEL_MEAN"), ("pixel_std", "MODEL.PIXEL_STD")):
            self.register_buffer(name, torch.tensor(config[key], dtype=torch.float32).view(-1, 1, 1), persistent=False)

    def _images(self, inputs: Inputs) -> torch.Tensor:
        images = [(one["image"] - self.pixel_mean) / self.pixel_std for one in inputs]
        return pad_images(images, self.backbone.size_divisibility, 0.0, getattr(self.backbone, "square", 0))


class GeneralizedRCNN(Detector):
    def __init__(
        self, config: Mapping[str, Any], backbone: nn.Module, proposal_generator: nn.Module | None, roi_heads: nn.Module
    ) -> None:
        super().__init__(config, backbone)
        self.proposal_generator = proposal_generator
        self.roi_heads = roi_heads

    def forward(self, inputs: Inputs) -> Losses:
        images = self._images(inputs)
        features = self.backbone(images)
        return self._region_losses(inputs, features)

    def _region_losses(self, inputs: Inputs, features: dict[str, torch.Tensor]) -> Losses:
        truth: list[Samples] = [one["instances"] for one in inputs]
        losses: Losses = {}
        if self.proposal_generator is None:
            proposals = [one["proposals"] for one in inputs]
        else:
            proposals, losses = self.proposal_generator(sizes_of_images(inputs), features, truth)
        regions: Losses = self.roi_heads(features, proposals, truth)
        return regions | losses


class ProposalNetwork(Detector):
    def __init__(self, config: Mapping[str, Any], backbone: nn.Module, proposal_generator: nn.Module) -> None:
        super().__init__(config, backbone)
        self.proposal_generator = proposal_generator

    def forward(self, inputs: Inputs) -> Losses:
        images = self._images(inputs)
        features = self.backbone(images)
        truth = [one["instances"] for one in inputs]
        losses: Losses = self.proposal_generator(sizes_of_images(inputs), features, truth)[1]
        return losses


class SemanticSegmentor(Detector):
    def __init__(self, config: Mapping[str, Any], backbone: nn.Module, sem_seg_head: nn.Module) -> None:
        super().__init__(config, backbone)
        self.sem_seg_head = sem_seg_head

    def forward(self, inputs: Inputs) -> Losses:
        images = self._images(inputs)
        features = self.backbone(images)
        losses: Losses = self.sem_seg_head(features, gather_classes(self, inputs))
        return losses


class PanopticFPN(GeneralizedRCNN):
    def __init__(self, config: Mapping[str, Any], sem_seg_head: nn.Module, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.sem_seg_head = sem_seg_head

    def forward(self, inputs: Inputs) -> Losses:
        images = self._images(inputs)
        features = self.backbone(images)
        wanted = gather_classes(self, inputs)
        losses: Losses = self.sem_seg_head(features, wanted)
        return losses | self._region_losses(inputs, features)


def gather_classes(model: Any, inputs: Inputs) -> torch.Tensor:
    return pad_images([one["sem_seg"] for one in inputs], model.backbone.size_divisibility, model.sem_seg_head.ignored)


def sizes_of_images(inputs: Inputs) -> list[tuple[int, int]]:
    return [(one["image"].shape[-2], one["image"].shape[-1]) for one in inputs]


def pad_images(images: Sequence[torch.Tensor], multiple: int, filling: float, square: int = 0) -> torch.Tensor:
    """Images as one batch, as high and wide as the largest (or ``square``), rounded up to a multiple."""
    height = square or max(image.shape[-2] for image in images)
    width = square or max(image.shape[-1] for image in images)
    if multiple > 1:
        height, width = -(-height // multiple) * multiple, -(-width // multiple) * multiple
    if len(images) == 1:
        more = (0, width - images[0].shape[-1], 0, height - images[0].shape[-2])
        return F.pad(images[0], more, value=filling).unsqueeze_(0)
    batch = images[0].new_full((len(images), *images[0].shape[:-2], height, width), filling)
    for place, image in zip(batch, images, strict=True):
        place[..., : image.shape[-2], : image.shape[-1]].copy_(image)
    return batch
