"""Anchors over feature maps, and boxes as shifts of anchors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint.layers import Feature

_LARGEST_SCALE = math.log(1000.0 / 16)


class AnchorGenerator(nn.Module):
    """DefaultAnchorGenerator: every size in every aspect ratio at every place of every level."""

    def __init__(self, config: Mapping[str, Any], features: Sequence[Feature]) -> None:
        super().__init__()
        if config["MODEL.ANCHOR_GENERATOR.NAME"] != "DefaultAnchorGenerator":
            raise InputError(
                f"MODEL.ANCHOR_GENERATOR.NAME '{config['MODEL.ANCHOR_GENERATOR.NAME']}' has no blueprint; expected "
                "DefaultAnchorGenerator. Install Detectron2 beside oomproof to trace the real model"
            )
        sizes = _for_each_level("SIZES", config["MODEL.ANCHOR_GENERATOR.SIZES"], len(features))
        ratios = _for_each_level("ASPECT_RATIOS", config["MODEL.ANCHOR_GENERATOR.ASPECT_RATIOS"], len(features))
        self.offset = float(config["MODEL.ANCHOR_GENERATOR.OFFSET"])
        self.strides = [feature.stride for feature in features]
        self.cell_anchors = nn.Module()
        for level, (some, shapes) in enumerate(zip(sizes, ratios, strict=True)):
            self.cell_anchors.register_buffer(str(level), _cell(some, shapes), persistent=False)
        counts = {len(some) * len(shapes) for some, shapes in zip(sizes, ratios, strict=True)}
        if len(counts) != 1:
            raise InputError(
                f"MODEL.ANCHOR_GENERATOR: every level must have as many anchors a place; got {sorted(counts)}"
            )
        self.per_place = counts.pop()

    def forward(self, features: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        cells = self.cell_anchors.buffers()
        return [self._grid(map_.shape[-2:], *how) for map_, *how in zip(features, self.strides, cells, strict=True)]

    def _grid(self, size: Sequence[int], stride: int, cell: torch.Tensor) -> torch.Tensor:
        height, width = size
        first = self.offset * stride
        across = torch.arange(first, width * stride, step=stride, dtype=torch.float32)
        down = torch.arange(first, height * stride, step=stride, dtype=torch.float32)
        y, x = torch.meshgrid(down, across, indexing="ij")
        x, y = x.reshape(-1), y.reshape(-1)
        shifts = torch.stack((x, y, x, y), dim=1)
        return (shifts.view(-1, 1, 4) + cell.view(1, -1, 4)).reshape(-1, 4)


def _cell(sizes: Sequence[float], ratios: Sequence[float]) -> torch.Tensor:
    rows = []
    for size in sizes:
        for ratio in ratios:
            width = math.sqrt(size**2 / ratio)
            height = ratio * width
            rows.append([-width / 2, -height / 2, width / 2, height / 2])
    return torch.tensor(rows)


def _for_each_level(name: str, given: Sequence[Any], levels: int) -> list[Sequence[float]]:
    """One list a level; a single list is meant for all of them."""
    if given and not isinstance(given[0], (list, tuple)):
        return [given] * levels
    if len(given) == 1:
        return [given[0]] * levels
    if len(given) != levels:
        raise InputError(
            f"MODEL.ANCHOR_GENERATOR.{name} has {len(given)} lists for {levels} feature maps; give one, or one a map"
        )
    return list(given)


Weights = tuple[float, float, float, float]


def shifts_to(boxes: torch.Tensor, anchors: torch.Tensor, weights: Weights) -> torch.Tensor:
    """What must be added to anchors, in the network's units, to make them the boxes."""
    widths, heights = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    x, y = anchors[:, 0] + 0.5 * widths, anchors[:, 1] + 0.5 * heights
    box_widths, box_heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    box_x, box_y = boxes[:, 0] + 0.5 * box_widths, boxes[:, 1] + 0.5 * box_heights
    across, down, wider, higher = weights
    dx, dy = across * (box_x - x) / widths, down * (box_y - y) / heights
    dw, dh = wider * torch.log(box_widths / widths), higher * torch.log(box_heights / heights)
    return torch.stack((dx, dy, dw, dh), dim=1)


def move_anchors(anchors: torch.Tensor, shifts: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Anchors moved by what the network says; ``shifts`` may hold several moves for each."""
    shifts = shifts.float()
    widths, heights = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    x, y = anchors[:, 0] + 0.5 * widths, anchors[:, 1] + 0.5 * heights
    across, down, wider, higher = weights
    dx, dy = shifts[:, 0::4] / across, shifts[:, 1::4] / down
    dw = torch.clamp(shifts[:, 2::4] / wider, max=_LARGEST_SCALE)
    dh = torch.clamp(shifts[:, 3::4] / higher, max=_LARGEST_SCALE)
    x, y = dx * widths[:, None] + x[:, None], dy * heights[:, None] + y[:, None]
    w, h = torch.exp(dw) * widths[:, None], torch.exp(dh) * heights[:, None]
    sides = (x - 0.5 * w, y - 0.5 * h, x + 0.5 * w, y + 0.5 * h)
    return torch.stack(sides, dim=-1).reshape(shifts.shape)


class BoxLoss(NamedTuple):
    """How the distance of boxes is counted."""

    kind: str
    beta: float
    weights: Weights


def box_loss_of(config: Mapping[str, Any], part: str, weights: Sequence[float]) -> BoxLoss:
    across, down, wider, higher = weights
    beta = "SMOOTH_L1_LOSS_BETA" if part == "RETINANET" else "SMOOTH_L1_BETA"
    kind = config[f"MODEL.{part}.BBOX_REG_LOSS_TYPE"]
    return BoxLoss(kind, float(config[f"MODEL.{part}.{beta}"]), (across, down, wider, higher))


def box_loss(
    how: BoxLoss, anchors: torch.Tensor, shifts: torch.Tensor, boxes: list[torch.Tensor], mask: Any
) -> torch.Tensor:
    """The summed box regression loss over the places of ``mask``; ``shifts`` is images x anchors x 4."""
    if how.kind == "smooth_l1":
        wanted = torch.stack([shifts_to(some, anchors, how.weights) for some in boxes])
        return _smooth_l1(shifts[mask], wanted[mask], how.beta)
    made = torch.stack([move_anchors(anchors, some, how.weights) for some in shifts])
    return _overlap_loss(made[mask], torch.stack(boxes)[mask], how.kind)


def _smooth_l1(given: torch.Tensor, wanted: torch.Tensor, beta: float) -> torch.Tensor:
    away = torch.abs(given - wanted)
    if beta < 1e-5:
        return away.sum()
    return torch.where(away < beta, 0.5 * away**2 / beta, away - 0.5 * beta).sum()


def _overlap_loss(given: torch.Tensor, wanted: torch.Tensor, kind: str) -> torch.Tensor:
    from torchvision import ops

    losses = {
        "giou": ops.generalized_box_iou_loss,
        "diou": ops.distance_box_iou_loss,
        "ciou": ops.complete_box_iou_loss,
    }
    if kind not in losses:
        raise InputError(f"BBOX_REG_LOSS_TYPE must be smooth_l1, {', '.join(losses)}; got '{kind}'")
    loss: torch.Tensor = losses[kind](given, wanted, reduction="sum")
    return loss
