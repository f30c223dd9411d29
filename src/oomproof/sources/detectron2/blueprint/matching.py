"""Boxes held against anchors, and the samples that are taken.

The table of overlaps is made with all its temporaries, which is what takes memory. Which anchor matches which box is
not looked up in it: samples are laid out as full as a trained network fills them, so nothing has to be computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def overlaps(boxes: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Intersection over union of every box with every anchor: about 25 bytes a pair for a moment, 4 in the end."""
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    anchor_area = (anchors[:, 2] - anchors[:, 0]) * (anchors[:, 3] - anchors[:, 1])
    shared = _intersect_boxes(boxes, anchors)
    return torch.where(shared > 0, shared / (area[:, None] + anchor_area - shared), torch.zeros(1))


def _intersect_boxes(boxes: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    sides = torch.min(boxes[:, None, 2:], anchors[:, 2:]) - torch.max(boxes[:, None, :2], anchors[:, :2])
    sides.clamp_(min=0)
    return sides.prod(dim=2)


def match(table: torch.Tensor, thresholds: Sequence[float], labels: Sequence[int], *, low_quality: bool) -> None:
    """The matcher's own tensors: best box of each anchor, labels by threshold, best anchor of each box."""
    if not table.numel():
        return
    torch.all(table >= 0)
    values, _ = table.max(dim=0)
    found = torch.ones(table.shape[1], dtype=torch.int8)
    edges = (-float("inf"), *thresholds, float("inf"))
    for label, low, high in zip(labels, edges, edges[1:], strict=False):
        found[(values >= low) & (values < high)] = label
    if low_quality:
        best, _ = table.max(dim=1)
        _ = table == best[:, None]


def make_labels(count: int, positive: int) -> torch.Tensor:
    """Labels of ``count`` anchors: the first ``positive`` are objects, the others background."""
    labels = torch.zeros(count, dtype=torch.int8)
    labels[:positive] = 1
    return labels


def subsample_labels(labels: torch.Tensor, samples: int, share: float) -> torch.Tensor:
    """Labels with all but ``samples`` of them set to -1 (ignored), at most ``share`` of those objects."""
    positive = ((labels != -1) & (labels != 0)).nonzero()[:, 0]
    negative = (labels == 0).nonzero()[:, 0]
    objects = min(positive.numel(), int(samples * share))
    background = min(negative.numel(), samples - objects)
    torch.randperm(negative.numel())
    kept = torch.full_like(labels, -1)
    kept[:objects] = 1
    kept[positive.numel() : positive.numel() + background] = 0
    return kept


def around(boxes: torch.Tensor, size: tuple[int, int], count: int) -> torch.Tensor:
    """``count`` proposals as a trained network makes them: crowded around the boxes, or all over an image without."""
    given = boxes.shape[0]
    if not given:
        return scatter_boxes(count, size)
    rounds = -(-count // given)
    moves = (torch.arange(rounds) % 9).reshape(-1, 1, 1) / 4 - 1  # from -1 to 1
    reach = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    return (boxes + 0.12 * moves * reach).reshape(-1, 4)[:count]


def scatter_boxes(count: int, size: tuple[int, int]) -> torch.Tensor:
    """Boxes of many sizes all over an image: irrational steps come close to every place and size, without chance."""
    height, width = size
    number = torch.arange(1, count + 1, dtype=torch.float32)
    x, y = (number * 0.7548777) % 1, (number * 0.5698403) % 1
    side = 2 ** (3 + 5 * ((number * 0.6180340) % 1))
    left, top = x * (width - side).clamp(min=0), y * (height - side).clamp(min=0)
    right, bottom = (left + side).clamp(max=width), (top + side).clamp(max=height)
    return torch.stack((left, top, right, bottom), dim=1)
