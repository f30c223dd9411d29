"""Heads of models without a pyramid (C4): every region goes through the fifth stage of the ResNet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint.box_head import FastRCNNOutputLayers
from oomproof.sources.detectron2.blueprint.layers import Feature
from oomproof.sources.detectron2.blueprint.mask_head import MaskRCNNConvUpsampleHead
from oomproof.sources.detectron2.blueprint.pooling import pooler
from oomproof.sources.detectron2.blueprint.resnet import make_stage
from oomproof.sources.detectron2.blueprint.roi_heads import Losses, Maps, boxes_of, require_head
from oomproof.sources.detectron2.blueprint.samples import Samples, foreground, sample_regions

_BLOCKS = 3


class Res5ROIHeads(nn.Module):
    def __init__(self, config: Mapping[str, Any], features: Mapping[str, Feature]) -> None:
        super().__init__()
        self.full_samplers = True
        if config["MODEL.KEYPOINT_ON"]:
            raise InputError("MODEL.ROI_HEADS.NAME Res5ROIHeads has no keypoint head; set MODEL.KEYPOINT_ON False")
        self.config = config
        (self.in_feature,) = config["MODEL.ROI_HEADS.IN_FEATURES"]
        self.pooler = pooler(config, "BOX", [features[self.in_feature].stride])
        outputs = 8 * int(config["MODEL.RESNETS.RES2_OUT_CHANNELS"])
        undilated = {**config, "MODEL.RESNETS.RES5_DILATION": 1}
        self.res5 = make_stage(undilated, 5, blocks=_BLOCKS, inputs=outputs // 2, outputs=outputs, stride=2)
        weights = tuple(config["MODEL.ROI_BOX_HEAD.BBOX_REG_WEIGHTS"])
        self.box_predictor = FastRCNNOutputLayers(config, outputs, weights)
        if config["MODEL.MASK_ON"]:
            require_head(config, "MODEL.ROI_MASK_HEAD.NAME", "MaskRCNNConvUpsampleHead")
            self.mask_head = MaskRCNNConvUpsampleHead(config, outputs)

    def forward(self, features: Maps, proposals: list[torch.Tensor], truth: list[Samples]) -> Losses:
        samples = sample_regions(self.config, proposals, truth, self.full_samplers)
        x = self.pooler([features[self.in_feature]], boxes_of(samples))
        x = self.res5(x)
        scores, shifts = self.box_predictor(x.mean(dim=[2, 3]))
        losses = self.box_predictor.losses(scores, shifts, samples)
        if self.config["MODEL.MASK_ON"]:
            background = int(self.config["MODEL.ROI_HEADS.NUM_CLASSES"])
            objects = torch.cat([image["gt_classes"] for image in samples]) < background
            of_objects = x[objects]
            del x
            losses |= self.mask_head(of_objects, foreground(samples, background))
        return losses
