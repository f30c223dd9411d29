"""ViTDet's pyramid: every level is made of the transformer's one map, by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from oomproof.sources.detectron2.blueprint.fpn import LastLevelMaxPool
from oomproof.sources.detectron2.blueprint.layers import Conv2d, Feature, norm
from oomproof.sources.detectron2.blueprint.vit import ViT


class SimpleFeaturePyramid(nn.Module):
    """p2 to p5 at 4, 2, 1 and 0.5 times the size of the map, and p6. ``square``: the side that images are padded to."""

    def __init__(self, config: Mapping[str, Any], net: ViT, square: int) -> None:
        super().__init__()
        kind, outputs = config["MODEL.FPN.NORM"], int(config["MODEL.FPN.OUT_CHANNELS"])
        width = net.feature.channels
        scaling: dict[int, tuple[list[nn.Module | None], int]] = {
            2: ([_double(width), norm(kind, width // 2), nn.GELU(), _double(width // 2)], width // 4),
            3: ([_double(width)], width // 2),
            4: ([], width),
            5: ([nn.MaxPool2d(kernel_size=2, stride=2)], width),
        }
        self.features: dict[str, Feature] = {}
        for level, (layers, channels) in scaling.items():
            last = [
                Conv2d(channels, outputs, 1, bias=not kind, norm=norm(kind, outputs)),
                Conv2d(outputs, outputs, 3, bias=not kind, norm=norm(kind, outputs)),
            ]
            self.add_module(f"simfp_{level}", nn.Sequential(*[each for each in layers if each is not None], *last))
            self.features[f"p{level}"] = Feature(outputs, 1 << level)
        self.levels = tuple(scaling)
        self.net = net
        self.top_block = LastLevelMaxPool()
        self.features["p6"] = Feature(outputs, 1 << 6)
        self.size_divisibility, self.square = 1 << max(scaling), square

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.net(x)
        results = [self.get_submodule(f"simfp_{level}")(x) for level in self.levels]
        results += self.top_block(results[-1])
        return dict(zip(self.features, results, strict=True))


def _double(channels: int) -> nn.Module:
    return nn.ConvTranspose2d(channels, channels // 2, kernel_size=2, stride=2)
