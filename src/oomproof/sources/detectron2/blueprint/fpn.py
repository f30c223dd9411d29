"""Feature pyramids over a ResNet, with the levels that box detectors and RetinaNet add on top."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint.layers import Conv2d, Feature, norm
from oomproof.sources.detectron2.blueprint.resnet import ResNet


class LastLevelMaxPool(nn.Module):
    """p6, every other pixel of p5."""

    levels, source = 1, "p5"

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [F.max_pool2d(x, kernel_size=1, stride=2)]


class LastLevelP6P7(nn.Module):
    """p6 and p7, by convolutions from res5."""

    levels, source = 2, "res5"

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.p6 = nn.Conv2d(inputs, outputs, 3, 2, 1)
        self.p7 = nn.Conv2d(outputs, outputs, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        p6 = self.p6(x)
        return [p6, self.p7(F.relu(p6))]


class FPN(nn.Module):
    def __init__(
        self, config: Mapping[str, Any], bottom_up: ResNet, top_block: LastLevelMaxPool | LastLevelP6P7
    ) -> None:
        super().__init__()
        outputs, kind = int(config["MODEL.FPN.OUT_CHANNELS"]), config["MODEL.FPN.NORM"]
        self.taken = tuple(config["MODEL.FPN.IN_FEATURES"])
        self.average = config["MODEL.FPN.FUSE_TYPE"] == "avg"
        self.features: dict[str, Feature] = {}
        self.levels: list[int] = []
        missing = set(self.taken) - set(bottom_up.features)
        if missing:
            raise InputError(
                f"MODEL.FPN.IN_FEATURES names {', '.join(sorted(missing))}; MODEL.RESNETS.OUT_FEATURES must name it too"
            )
        for name in self.taken:
            feature = bottom_up.features[name]
            level = int(math.log2(feature.stride))
            lateral = Conv2d(feature.channels, outputs, 1, bias=not kind, norm=norm(kind, outputs))
            output = Conv2d(outputs, outputs, 3, bias=not kind, norm=norm(kind, outputs))
            self.add_module(f"fpn_lateral{level}", lateral)
            self.add_module(f"fpn_output{level}", output)
            self.features[f"p{level}"] = Feature(outputs, feature.stride)
            self.levels.append(level)
        for level in range(self.levels[-1] + 1, self.levels[-1] + 1 + top_block.levels):
            self.features[f"p{level}"] = Feature(outputs, 1 << level)
        self.size_divisibility = 1 << self.levels[-1]
        self.top_block = top_block
        self.bottom_up = bottom_up

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        below = self.bottom_up(x)
        results: list[torch.Tensor] = []
        merged: torch.Tensor | None = None
        for name, level in zip(reversed(self.taken), reversed(self.levels), strict=True):
            lateral = self.get_submodule(f"fpn_lateral{level}")
            if merged is None:
                merged = lateral(below[name])
            else:
                above = F.interpolate(merged, scale_factor=2.0, mode="nearest")
                side = lateral(below[name])
                merged = side + above
                if self.average:
                    merged /= 2
            results.insert(0, self.get_submodule(f"fpn_output{level}")(merged))
        top = self.top_block.source
        results += self.top_block(below[top] if top in below else results[list(self.features).index(top)])
        return dict(zip(self.features, results, strict=True))
