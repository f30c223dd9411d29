"""Regions cut out of feature maps, each from the level that fits its size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torchvision.ops import roi_align, roi_pool

from oomproof.errors import InputError

_USUAL_SIDE, _USUAL_LEVEL = 224, 4
"""a box of this side is cut from this level"""


class LevelPooler(nn.Module):
    def __init__(self, side: int, scale: float, sampling: int, kind: str) -> None:
        super().__init__()
        self.side, self.scale, self.sampling, self.kind = side, scale, sampling, kind

    def forward(self, x: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
        regions = regions.to(x.dtype)
        if self.kind == "ROIPool":
            return roi_pool(x, regions, self.side, self.scale)
        return roi_align(x, regions, self.side, self.scale, self.sampling, self.kind == "ROIAlignV2")


class ROIPooler(nn.Module):
    def __init__(self, side: int, strides: Sequence[int], sampling: int, kind: str) -> None:
        super().__init__()
        if kind not in ("ROIAlign", "ROIAlignV2", "ROIPool"):
            raise InputError(
                f"POOLER_TYPE '{kind}' has no blueprint; expected ROIAlignV2, ROIAlign or ROIPool. Install Detectron2 "
                "beside oomproof to trace the real model"
            )
        self.side = side
        self.level_poolers = nn.ModuleList(LevelPooler(side, 1 / stride, sampling, kind) for stride in strides)
        self.lowest, self.highest = int(math.log2(strides[0])), int(math.log2(strides[-1]))

    def forward(self, maps: Sequence[torch.Tensor], boxes: Sequence[torch.Tensor]) -> torch.Tensor:
        regions = _with_image(boxes)
        if len(self.level_poolers) == 1:
            result: torch.Tensor = self.level_poolers[0](maps[0], regions)
            return result
        levels = self._levels(boxes)
        out = torch.zeros(regions.shape[0], maps[0].shape[1], self.side, self.side, dtype=maps[0].dtype)
        for number, pooler in enumerate(self.level_poolers):
            places = (levels == number).nonzero()[:, 0]
            out.index_put_((places,), pooler(maps[number], regions[places]))
        return out

    def _levels(self, boxes: Sequence[torch.Tensor]) -> torch.Tensor:
        every = torch.cat(list(boxes))
        side = torch.sqrt((every[:, 2] - every[:, 0]) * (every[:, 3] - every[:, 1]))
        level = torch.floor(_USUAL_LEVEL + torch.log2(side / _USUAL_SIDE + 1e-8))
        return level.clamp(self.lowest, self.highest).to(torch.int64) - self.lowest


def pooler(config: Mapping[str, Any], head: str, strides: Sequence[int]) -> ROIPooler:
    """The pooler of the BOX, MASK or KEYPOINT head."""

    def of(name: str) -> Any:
        return config[f"MODEL.ROI_{head}_HEAD.POOLER_{name}"]

    return ROIPooler(int(of("RESOLUTION")), strides, int(of("SAMPLING_RATIO")), of("TYPE"))


def _with_image(boxes: Sequence[torch.Tensor]) -> torch.Tensor:
    """All boxes, each with the number of its image in front."""
    numbers = torch.cat([torch.full((len(some), 1), float(image)) for image, some in enumerate(boxes)])
    return torch.cat((numbers, torch.cat(list(boxes))), dim=1)
