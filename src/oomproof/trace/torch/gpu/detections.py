"""Detections as many as in a crowded image.

An untrained network is sure of nothing and detects nothing, so that what is done with detections (masks drawn at full
size) would look free. While a validation is traced, made-up boxes fill up what each image may have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch


@contextmanager
def detections_filled(model: torch.nn.Module) -> Iterator[None]:
    heads = sys.modules.get("torchvision.models.detection.roi_heads")
    if heads is None or not any(isinstance(module, heads.RoIHeads) for module in model.modules()):
        yield
        return
    plain = heads.RoIHeads.postprocess_detections

    def fill_detections(self: Any, logits: Any, regression: Any, proposals: Any, shapes: list[tuple[int, int]]) -> Any:
        found = plain(self, logits, regression, proposals, shapes)
        filled = [
            _fill(boxes, scores, labels, self.detections_per_img, shape)
            for boxes, scores, labels, shape in zip(*found, shapes, strict=True)
        ]
        return tuple(list(column) for column in zip(*filled, strict=True))

    with patch.object(heads.RoIHeads, "postprocess_detections", fill_detections):
        yield


def _fill(boxes: Any, scores: Any, labels: Any, most: int, shape: tuple[int, int]) -> tuple[Any, Any, Any]:
    missing = most - len(boxes)
    if missing <= 0:
        return boxes, scores, labels
    height, width = shape
    corner = torch.linspace(0.0, 0.5, missing)
    room = torch.tensor([width, height, width, height], dtype=boxes.dtype)
    made = torch.stack([corner, corner, corner + 0.4, corner + 0.4], dim=1) * room
    return (
        torch.cat([boxes, made]),
        torch.cat([scores, torch.full((missing,), 0.9, dtype=scores.dtype)]),
        torch.cat([labels, torch.ones(missing, dtype=labels.dtype)]),
    )
