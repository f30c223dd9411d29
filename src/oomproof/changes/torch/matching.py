"""Anchors matched to boxes a part at a time: the ``matching=chunked`` setting, for torchvision's detectors.

A detector compares every annotated box with every anchor, several numbers a pair: 200 boxes against 240,000 anchors are
gigabytes for a moment. Here that table is never whole. Anchors are taken in parts; of each part only the best box of an
anchor and the best anchor of a box stay. The matches are those of torchvision, ties included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from oomproof.errors import CannotDo

PAIRS = 1 << 22
"""Pairs of box and anchor that are compared at a time: about 0.1 GiB. Images with few boxes take one part, or two."""


def chunk_matching(model: torch.nn.Module) -> list[str]:
    """Applies the setting to every part of the model that matches anchors; returns their paths."""
    known = "torchvision" in sys.modules  # else no part of the model can be one of its detectors
    found = [path for path, module in model.named_modules() if known and _apply(module)]
    if not found:
        raise CannotDo(
            f"matching=chunked: {type(model).__name__} has none of torchvision's anchor matching (Faster, Mask and "
            "Keypoint R-CNN, RetinaNet, SSD, FCOS); leave matching=whole"
        )
    return found


def _apply(module: torch.nn.Module) -> bool:
    from torchvision.models.detection import FCOS, RetinaNet
    from torchvision.models.detection.roi_heads import RoIHeads
    from torchvision.models.detection.rpn import RegionProposalNetwork
    from torchvision.models.detection.ssd import SSD

    if isinstance(module, FCOS):
        module.compute_loss = partial(_fcos_loss, module)
        return True
    if isinstance(module, RegionProposalNetwork):
        module.box_similarity = Overlaps
    elif isinstance(module, RoIHeads):
        module.assign_targets_to_proposals = partial(_call_with_lazy_overlaps, module.assign_targets_to_proposals)
    elif isinstance(module, RetinaNet):
        module.compute_loss = partial(_call_with_lazy_overlaps, module.compute_loss)
    elif isinstance(module, SSD):
        module.forward = partial(_call_with_lazy_overlaps, module.forward)
    else:
        return False
    module.proposal_matcher = ChunkedMatcher(module.proposal_matcher)
    return True


@dataclass(frozen=True)
class Overlaps:
    """How much boxes and anchors overlap, still to be computed."""

    boxes: torch.Tensor
    anchors: torch.Tensor

    def whole(self) -> torch.Tensor:
        from torchvision.ops import box_iou

        return box_iou(self.boxes, self.anchors)

    def parts(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(first anchor, boxes x some anchors), over all anchors."""
        for first, anchors in _parts(self.anchors, self.boxes.shape[0]):
            yield first, Overlaps(self.boxes, anchors).whole()


def _parts(anchors: torch.Tensor, boxes: int) -> Iterator[tuple[int, torch.Tensor]]:
    size = max(1, PAIRS // max(1, boxes))
    for first in range(0, anchors.shape[0], size):
        yield first, anchors[first : first + size]


def _call_with_lazy_overlaps(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """These parts of torchvision call box_iou by name and hand the result to their matcher."""
    from torchvision.ops import boxes

    with patch.object(boxes, "box_iou", Overlaps):
        return function(*args, **kwargs)


class ChunkedMatcher:
    """torchvision's Matcher or SSDMatcher, given Overlaps instead of a table of numbers."""

    def __init__(self, matcher: Any) -> None:
        from oomproof.frameworks.torchvision import Matcher, SSDMatcher

        if type(matcher) not in (Matcher, SSDMatcher):
            raise CannotDo(
                f"matching=chunked knows torchvision's Matcher and SSDMatcher; the model has a "
                f"{type(matcher).__name__}, so leave matching=whole"
            )
        self.matcher, self.best_anchor_wins = matcher, type(matcher) is SSDMatcher
        self.BELOW_LOW_THRESHOLD, self.BETWEEN_THRESHOLDS = matcher.BELOW_LOW_THRESHOLD, matcher.BETWEEN_THRESHOLDS

    def __call__(self, overlaps: Overlaps | torch.Tensor) -> torch.Tensor:
        if isinstance(overlaps, torch.Tensor):
            return self.matcher(overlaps)
        if overlaps.boxes.shape[0] * overlaps.anchors.shape[0] <= PAIRS:
            return self.matcher(overlaps.whole())
        values, candidates, best, best_anchor = _best(overlaps)
        low, high = self.matcher.low_threshold, self.matcher.high_threshold
        matches = torch.where(values < low, self.BELOW_LOW_THRESHOLD, candidates)
        matches = torch.where((values >= low) & (values < high), self.BETWEEN_THRESHOLDS, matches)
        if self.matcher.allow_low_quality_matches:
            # An anchor that is a box's best one, ties included, is matched however small the overlap.
            kept = torch.cat([(part == best[:, None]).any(dim=0) for _, part in overlaps.parts()])
            matches = torch.where(kept, candidates, matches)
        if self.best_anchor_wins:
            matches[best_anchor] = torch.arange(len(best_anchor), device=matches.device)
        return matches


def _best(overlaps: Overlaps) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of every anchor its best box (overlap, place); of every box its best anchor (the same; the first of equals)."""
    values, candidates = [], []
    best = best_anchor = torch.empty(0)
    for first, part in overlaps.parts():
        value, candidate = part.max(dim=0)
        values.append(value)
        candidates.append(candidate)
        top, place = part.max(dim=1)
        if first == 0:
            best, best_anchor = top, place
            continue
        # Boxes without area overlap by nothing of nothing; torch.max takes such a NaN for the largest number.
        better = (top > best) | (top.isnan() & ~best.isnan())
        best_anchor = torch.where(better, place + first, best_anchor)
        best = torch.where(better, top, best)
    return torch.cat(values), torch.cat(candidates), best, best_anchor


def _fcos_loss(model: Any, targets: Any, head_outputs: Any, anchors: Any, num_anchors_per_level: Any) -> Any:
    """FCOS.compute_loss with the matching in parts."""
    matches = [
        fcos_matches(target["boxes"], some, num_anchors_per_level, model.center_sampling_radius)
        for some, target in zip(anchors, targets, strict=True)
    ]
    return model.head.compute_loss(targets, head_outputs, anchors, matches)


def fcos_matches(boxes: torch.Tensor, anchors: torch.Tensor, levels: list[int], radius: float) -> torch.Tensor:
    """The box that each anchor point is to find, or -1: the smallest box that it lies in, near the centre of, and whose
    size is the business of the anchor's level."""
    if boxes.numel() == 0:
        return torch.full((anchors.shape[0],), -1, dtype=torch.int64, device=anchors.device)
    size = anchors[:, 2] - anchors[:, 0]
    least, most = 4 * size, 8 * size
    least[: levels[0]] = 0
    most[-levels[-1] :] = float("inf")
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    smallness = 1e8 - (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    matches = []
    for first, some in _parts(anchors, boxes.shape[0]):
        these = slice(first, first + some.shape[0])
        points = (some[:, :2] + some[:, 2:]) / 2
        off_centre = (points[:, None] - centres).abs_().amax(dim=2)
        fitting = off_centre < radius * size[these, None]
        del off_centre
        edges = torch.cat([points[:, None] - boxes[:, :2], boxes[:, 2:] - points[:, None]], dim=2)
        fitting &= edges.amin(dim=2) > 0
        farthest = edges.amax(dim=2)
        del edges
        fitting &= (farthest > least[these, None]) & (farthest < most[these, None])
        del farthest
        value, match = (fitting.to(torch.float32) * smallness).max(dim=1)
        matches.append(torch.where(value < 1e-5, -1, match))
    return torch.cat(matches)
