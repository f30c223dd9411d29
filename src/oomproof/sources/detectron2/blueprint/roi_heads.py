"""Heads on regions: box, mask and keypoint heads side by side, each with a pooler of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint.box_head import FastRCNNConvFCHead, FastRCNNOutputLayers
from oomproof.sources.detectron2.blueprint.keypoint_head import KRCNNConvDeconvUpsampleHead, with_visible_keypoints
from oomproof.sources.detectron2.blueprint.layers import Feature
from oomproof.sources.detectron2.blueprint.mask_head import MaskRCNNConvUpsampleHead
from oomproof.sources.detectron2.blueprint.pooling import pooler
from oomproof.sources.detectron2.blueprint.samples import Samples, foreground, sample_regions

Losses = dict[str, torch.Tensor]
Maps = Mapping[str, torch.Tensor]


class StandardROIHeads(nn.Module):
    def __init__(self, config: Mapping[str, Any], features: Mapping[str, Feature]) -> None:
        super().__init__()
        self.full_samplers = True
        self.config = config
        self.in_features = tuple(config["MODEL.ROI_HEADS.IN_FEATURES"])
        taken = [features[name] for name in self.in_features]
        strides, channels = [feature.stride for feature in taken], taken[0].channels
        self.box_pooler = pooler(config, "BOX", strides)
        self._add_box_heads(channels)
        if config["MODEL.MASK_ON"]:
            require_head(config, "MODEL.ROI_MASK_HEAD.NAME", "MaskRCNNConvUpsampleHead")
            self.mask_pooler = pooler(config, "MASK", strides)
            self.mask_head = MaskRCNNConvUpsampleHead(config, channels)
        if config["MODEL.KEYPOINT_ON"]:
            require_head(config, "MODEL.ROI_KEYPOINT_HEAD.NAME", "KRCNNConvDeconvUpsampleHead")
            self.keypoint_pooler = pooler(config, "KEYPOINT", strides)
            self.keypoint_head = KRCNNConvDeconvUpsampleHead(config, channels)

    def _add_box_heads(self, channels: int) -> None:
        self.box_head: nn.Module = box_head(self.config, channels)
        weights = tuple(self.config["MODEL.ROI_BOX_HEAD.BBOX_REG_WEIGHTS"])
        self.box_predictor: nn.Module = FastRCNNOutputLayers(self.config, self.box_head.size, weights)

    def forward(self, features: Maps, proposals: list[torch.Tensor], truth: list[Samples]) -> Losses:
        samples = sample_regions(self.config, proposals, truth, self.full_samplers)
        losses = self._box_losses(features, samples, truth)
        if self.config["MODEL.MASK_ON"]:
            losses |= self._mask_losses(features, foreground(samples, self._background))
        if self.config["MODEL.KEYPOINT_ON"]:
            losses |= self._keypoint_losses(features, foreground(samples, self._background))
        return losses

    @property
    def _background(self) -> int:
        return int(self.config["MODEL.ROI_HEADS.NUM_CLASSES"])

    def _box_losses(self, features: Maps, samples: list[Samples], truth: list[Samples]) -> Losses:
        maps = [features[name] for name in self.in_features]
        x = self.box_pooler(maps, boxes_of(samples))
        x = self.box_head(x)
        predictions = self.box_predictor(x)
        del x
        losses: Losses = self.box_predictor.losses(*predictions, samples)
        return losses

    def _mask_losses(self, features: Maps, samples: list[Samples]) -> Losses:
        maps = [features[name] for name in self.in_features]
        x = self.mask_pooler(maps, boxes_of(samples))
        losses: Losses = self.mask_head(x, samples)
        return losses

    def _keypoint_losses(self, features: Maps, samples: list[Samples]) -> Losses:
        samples = with_visible_keypoints(samples)
        maps = [features[name] for name in self.in_features]
        x = self.keypoint_pooler(maps, boxes_of(samples))
        losses: Losses = self.keypoint_head(x, samples)
        return losses


def box_head(config: Mapping[str, Any], channels: int) -> FastRCNNConvFCHead:
    require_head(config, "MODEL.ROI_BOX_HEAD.NAME", "FastRCNNConvFCHead")
    return FastRCNNConvFCHead(config, channels, int(config["MODEL.ROI_BOX_HEAD.POOLER_RESOLUTION"]))


def boxes_of(samples: list[Samples]) -> list[torch.Tensor]:
    return [image["proposal_boxes"] for image in samples]


def require_head(config: Mapping[str, Any], key: str, known: str) -> None:
    if config[key] != known:
        raise InputError(
            f"{key} '{config[key]}' has no blueprint; expected {known}. Install Detectron2 beside oomproof to trace "
            "the real model"
        )
