"""Samplers as full as in a trained network.

An untrained network proposes few boxes that overlap an object, so the heads that run on foreground samples only (masks,
keypoints) would look cheap. While a step is traced, jittered copies of the annotated boxes join the proposals, as the
proposals of a trained network crowd around objects: samplers then draw their full share.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

_JITTER = (-0.12, 0.0, 0.12)
"""Shifts in parts of a box's size: a box moved by 0.12 in both directions overlaps the original by 0.63."""


@contextmanager
def samplers_filled(model: torch.nn.Module) -> Iterator[None]:
    with _torchvision_filled(model), _detectron2_filled(model):
        yield


@contextmanager
def _torchvision_filled(model: torch.nn.Module) -> Iterator[None]:
    heads = sys.modules.get("torchvision.models.detection.roi_heads")
    if heads is None or not any(isinstance(module, heads.RoIHeads) for module in model.modules()):
        yield
        return
    plain = heads.RoIHeads.add_gt_proposals

    def add_jittered_boxes(
        self: Any, proposals: list[torch.Tensor], gt_boxes: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        return plain(self, proposals, [_jitter_boxes(boxes, self.fg_bg_sampler) for boxes in gt_boxes])  # type: ignore[no-any-return]

    with patch.object(heads.RoIHeads, "add_gt_proposals", add_jittered_boxes):
        yield


@contextmanager
def _detectron2_filled(model: torch.nn.Module) -> Iterator[None]:
    heads = sys.modules.get("detectron2.modeling.roi_heads.roi_heads")
    found = [] if heads is None else [module for module in model.modules() if isinstance(module, heads.ROIHeads)]
    if heads is None or not found:
        yield
        return
    fullest = max(found, key=_count_wanted)
    plain, boxes_of = heads.add_ground_truth_to_proposals, heads.Boxes

    def add_jittered_boxes(truth: Any, proposals: Any) -> Any:
        boxes = [image if isinstance(image, boxes_of) else image.gt_boxes for image in truth]
        return plain([boxes_of(_jitter_boxes(some.tensor, fullest)) for some in boxes], proposals)

    with patch.object(heads, "add_ground_truth_to_proposals", add_jittered_boxes):
        yield


def _count_wanted(sampler: Any) -> int:
    """Foreground samples that there is room for."""
    return int(sampler.batch_size_per_image * sampler.positive_fraction)


def _jitter_boxes(boxes: torch.Tensor, sampler: Any) -> torch.Tensor:
    """At least as many copies as the sampler has room for foreground samples."""
    wanted, count = _count_wanted(sampler), boxes.shape[0]
    if count == 0 or wanted <= count:
        return boxes
    rounds = -(-wanted // count)
    shifts = torch.tensor([(x, y) for x in _JITTER for y in _JITTER], dtype=boxes.dtype)
    moves = shifts[torch.arange(rounds) % len(shifts)].repeat(1, 2)
    size = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    copies = boxes[None] + moves[:, None] * size[None]
    return copies.reshape(-1, 4)
