"""One number from whatever a model or loss function returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from oomproof.errors import JobError


def total(losses: Any) -> torch.Tensor:
    """The sum of a tensor, of a dict or list of them, or ``.loss``."""
    if isinstance(losses, torch.Tensor):
        return losses if losses.dim() == 0 else losses.sum()
    if isinstance(getattr(losses, "loss", None), torch.Tensor):
        return losses.loss
    parts = losses.values() if isinstance(losses, Mapping) else losses
    if isinstance(parts, Iterable):
        parts = list(parts)
        if parts and all(isinstance(part, torch.Tensor) for part in parts):
            return sum(part if part.dim() == 0 else part.sum() for part in parts)
    raise JobError(
        f"the job's loss must return a tensor, or a dict or list of tensors; it returned {type(losses).__name__}"
    )
