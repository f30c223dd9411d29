"""The head that finds the keypoints of each person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.sources.detectron2.blueprint.layers import Conv2d
from oomproof.sources.detectron2.blueprint.samples import Samples


class KRCNNConvDeconvUpsampleHead(nn.Sequential):
    def __init__(self, config: Mapping[str, Any], channels: int) -> None:
        super().__init__()
        for number, width in enumerate(config["MODEL.ROI_KEYPOINT_HEAD.CONV_DIMS"], 1):
            self.add_module(f"conv_fcn{number}", Conv2d(channels, int(width), 3))
            self.add_module(f"conv_fcn_relu{number}", nn.ReLU())
            channels = int(width)
        self.score_lowres = nn.ConvTranspose2d(channels, int(config["MODEL.ROI_KEYPOINT_HEAD.NUM_KEYPOINTS"]), 4, 2, 1)

    def forward(self, x: torch.Tensor, samples: list[Samples]) -> dict[str, torch.Tensor]:
        for layer in self:
            x = layer(x)
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return {"loss_keypoint": _loss(x, samples)}


def _loss(logits: torch.Tensor, samples: list[Samples]) -> torch.Tensor:
    """Every pixel of a heatmap is a class; a keypoint that can be seen is one row."""
    if not logits.shape[0]:
        return logits.sum() * 0
    regions, points, height, width = logits.shape
    wanted = torch.zeros(regions * points, dtype=torch.int64)
    visible = torch.cat([image["gt_keypoints"][:, :, 2].reshape(-1) for image in samples]).nonzero()[:, 0]
    logits = logits.view(regions * points, height * width)
    return F.cross_entropy(logits[visible], wanted[visible], reduction="sum") / max(1, visible.numel())


def with_visible_keypoints(samples: list[Samples]) -> list[Samples]:
    """Regions in which at least one keypoint can be seen; proposals of a trained network cover most of them."""
    return [_keep_visible(image) if image["gt_classes"].shape[0] else image for image in samples]


def _keep_visible(image: Samples) -> Samples:
    places = (image["gt_keypoints"][:, :, 2] >= 1).any(dim=1).nonzero()[:, 0]
    return {name: value[places] for name, value in image.items()}
