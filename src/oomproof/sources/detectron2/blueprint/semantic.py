"""The head that gives every pixel a class, from all levels of a pyramid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.sources.detectron2.blueprint.layers import Conv2d, Feature, norm


class SemSegFPNHead(nn.Module):
    def __init__(self, config: Mapping[str, Any], features: Mapping[str, Feature]) -> None:
        super().__init__()
        self.ignored = int(config["MODEL.SEM_SEG_HEAD.IGNORE_VALUE"])
        self.stride = int(config["MODEL.SEM_SEG_HEAD.COMMON_STRIDE"])
        kind, width = config["MODEL.SEM_SEG_HEAD.NORM"], int(config["MODEL.SEM_SEG_HEAD.CONVS_DIM"])
        wanted = config["MODEL.SEM_SEG_HEAD.IN_FEATURES"]
        self.in_features = sorted((name for name in features if name in wanted), key=lambda name: features[name].stride)
        for name in self.in_features:
            channels, stride = features[name]
            layers: list[nn.Module] = []
            for _ in range(max(1, int(math.log2(stride) - math.log2(self.stride)))):
                layers.append(Conv2d(channels, width, 3, bias=not kind, norm=norm(kind, width), activation=F.relu))
                channels = width
                if stride != self.stride:
                    layers.append(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False))
            self.add_module(name, nn.Sequential(*layers))
        self.predictor = Conv2d(width, int(config["MODEL.SEM_SEG_HEAD.NUM_CLASSES"]), 1)

    def forward(self, features: Mapping[str, torch.Tensor], wanted: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self._logits(features)  # small ones, which live as long as the call
        return {"loss_sem_seg": self._loss(logits, wanted)}

    def _logits(self, features: Mapping[str, torch.Tensor]) -> torch.Tensor:
        first, *others = self.in_features
        x = self.get_submodule(first)(features[first])
        for name in others:
            x = x + self.get_submodule(name)(features[name])
        return self.predictor(x)

    def _loss(self, logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        logits = logits.float()
        logits = F.interpolate(logits, scale_factor=self.stride, mode="bilinear", align_corners=False)
        return F.cross_entropy(logits, wanted, ignore_index=self.ignored)
