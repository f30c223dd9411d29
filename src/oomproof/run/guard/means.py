"""Whether a loss is a mean over images or a sum: asked once, with two or three of them, before a batch is split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from oomproof.changes.torch.losses import total
from oomproof.changes.torch.micro_batches import images_in, split
from oomproof.frameworks.torch import BatchNormBase

_CHANCE = (
    torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout,
)  # fmt: skip
MEAN, SUM, OTHER, UNKNOWN = "mean", "sum", "other", "unknown"
CLOSE = 1e-3
"""relative: rounding of half precision stays below it, and a wrong divisor does not"""


def how_losses_join(model: torch.nn.Module, losses: Callable[[Any], Any], part: Any) -> str:
    """Compares the loss of few images with those of each, without dropout. Unknown where the batch itself decides it:
    with trained normalisation, or with less than two images."""
    if images_in(part) < 2 or _joins_images(model):
        return UNKNOWN
    few = split(part, images_in(part) // 2)[0]  # two images, or three
    with torch.no_grad(), _without_dropout(model):
        whole = float(total(losses(few)))
        each = [float(total(losses(one))) for one in split(few, images_in(few))]
    if _is_close(whole, sum(each) / len(each)):
        return MEAN
    return SUM if _is_close(whole, sum(each)) else OTHER


def _is_close(found: float, expected: float) -> bool:
    return abs(found - expected) <= CLOSE * max(abs(found), abs(expected), 1e-12)


def _joins_images(model: torch.nn.Module) -> bool:
    return any(module.training and isinstance(module, BatchNormBase) for module in model.modules())


@contextmanager
def _without_dropout(model: torch.nn.Module) -> Iterator[None]:
    drawing = [module for module in model.modules() if module.training and isinstance(module, _CHANCE)]
    for module in drawing:
        module.training = False
    try:
        yield
    finally:
        for module in drawing:
            module.training = True
