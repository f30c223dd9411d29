"""Whether a loss is a mean over images or a sum: looked at with two or three of them before a batch is split.

Once is not enough: a loss that is divided by words or boxes looks like a mean where images have as many of them. So it
is looked at again in later batches, at other images, ever more seldom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from oomproof.changes.torch.losses import total
from oomproof.changes.torch.micro_batches import images_in, part_sizes, take
from oomproof.frameworks.torch import BatchNormBase

_CHANCE = (
    torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout,
)  # fmt: skip
MEAN, SUM, OTHER, UNKNOWN = "mean", "sum", "other", "unknown"
_FIRST = 4
"""split steps that are all looked at"""
CLOSE = 1e-3
"""relative: rounding of half precision stays below it, and a wrong divisor does not"""


def how_losses_join(model: torch.nn.Module, losses: Callable[[Any], Any], batch: Any, look: int = 0) -> str:
    """Compares the loss of few images with those of each, without dropout, and with running statistics where those of
    the batch are trained on. Unknown where the batch decides it all the same: in layers without such statistics. Each
    ``look`` is at the images behind those of the one before."""
    images = images_in(batch)
    if images < 2 or _joins_images(model):
        return UNKNOWN
    few = part_sizes(images, images // 2)[0]  # two images, or three
    start = look * few % (images - few + 1)
    with torch.no_grad(), _each_by_itself(model):
        whole = float(total(losses(take(batch, start, start + few))))
        each = [float(total(losses(take(batch, start + one, start + one + 1)))) for one in range(few)]
    if _is_close(whole, sum(each) / len(each)):
        return MEAN
    return SUM if _is_close(whole, sum(each)) else OTHER


def _is_close(found: float, expected: float) -> bool:
    return abs(found - expected) <= CLOSE * max(abs(found), abs(expected), 1e-12)


def _joins_images(model: torch.nn.Module) -> bool:
    return any(isinstance(module, BatchNormBase) and module.running_mean is None for module in model.modules())


@contextmanager
def _each_by_itself(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout, and without normalisation over the batch."""
    changed = [m for m in model.modules() if m.training and isinstance(m, (*_CHANCE, BatchNormBase))]
    for module in changed:
        module.training = False
    try:
        yield
    finally:
        for module in changed:
            module.training = True


class Looks:
    """When to look: at the first split steps, then after twice as many each time."""

    def __init__(self) -> None:
        self.number = -1
        """of the last look"""
        self._splits, self._next = 0, 1

    def is_due(self) -> bool:
        self._splits += 1
        if self._splits < self._next:
            return False
        self._next = self._splits + 1 if self._splits < _FIRST else 2 * self._splits
        self.number += 1
        return True
