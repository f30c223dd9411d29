"""Whether a loss is a mean over images or a sum: asked once, with two or three of them, before a batch is split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oomproof.changes.torch.losses import total
from oomproof.changes.torch.micro_batches import images_in, split
from oomproof.frameworks.torch import BatchNormBase

MEAN, SUM, OTHER, UNKNOWN = "mean", "sum", "other", "unknown"
CLOSE = 1e-3
"""relative: rounding of half precision stays below it, and a wrong divisor does not"""


def how_losses_join(model: torch.nn.Module, losses: Callable[[Any], Any], part: Any) -> str:
    """Compares the loss of few images with those of each. Unknown where chance or the batch itself decides it: with
    dropout, with trained normalisation, or with less than two images."""
    if images_in(part) < 2 or _draws(model):
        return UNKNOWN
    few = split(part, images_in(part) // 2)[0]  # two images, or three
    with torch.no_grad():
        whole = float(total(losses(few)))
        each = [float(total(losses(one))) for one in split(few, images_in(few))]
    if _is_close(whole, sum(each) / len(each)):
        return MEAN
    return SUM if _is_close(whole, sum(each)) else OTHER


def _is_close(found: float, expected: float) -> bool:
    return abs(found - expected) <= CLOSE * max(abs(found), abs(expected), 1e-12)


def _draws(model: torch.nn.Module) -> bool:
    """Layers whose output is chance, or depends on the other images."""
    chance = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout)
    return any(
        module.training and (isinstance(module, BatchNormBase) or (isinstance(module, chance) and module.p > 0))
        for module in model.modules()
    )
