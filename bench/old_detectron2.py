"""Detectron2 as it was when most rows of its model zoo were measured, as far as memory is concerned.

Those figures are of September and October 2019. On 3 December 2019 (commit baf6667e) Detectron2 made its table of
overlaps with fewer temporaries: 24 bytes for every pair of box and anchor since then, 37 before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from oomproof.sources.detectron2.blueprint import matching


@dataclass(frozen=True)
class OldDetectron2:
    """A job, traced as Detectron2 of October 2019 would have run it."""

    job: Any

    @property
    def settings(self) -> Any:
        return self.job.settings

    def trace(self, request: Any) -> Any:
        with old_matching():
            return self.job.trace(request)


@contextmanager
def old_matching() -> Iterator[None]:
    with patch.object(matching, "overlaps", _overlaps):
        yield


def _overlaps(boxes: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Both corners of every intersection and its sides stay until the table is ready."""
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    anchor_area = (anchors[:, 2] - anchors[:, 0]) * (anchors[:, 3] - anchors[:, 1])
    upper_left = torch.max(boxes[:, None, :2], anchors[:, :2])
    lower_right = torch.min(boxes[:, None, 2:], anchors[:, 2:])
    sides = (lower_right - upper_left).clamp(min=0)
    shared = sides[:, :, 0] * sides[:, :, 1]
    return torch.where(shared > 0, shared / (area[:, None] + anchor_area - shared), torch.zeros(1))
