"""One number from whatever a model or loss function returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from oomproof.errors import JobError


def total(losses: Any, by: Callable[..., Any] | None = None) -> torch.Tensor:
    """A tensor of one number, ``.loss``, or the sum of a dict or list of tensors; ``by`` is the function that
    returned it."""
    if isinstance(losses, torch.Tensor):
        return _single(losses, by)
    if isinstance(getattr(losses, "loss", None), torch.Tensor):
        return _single(losses.loss, by)
    parts = losses.values() if isinstance(losses, Mapping) else losses
    if isinstance(parts, Iterable):
        parts = list(parts)
        if parts and all(isinstance(part, torch.Tensor) for part in parts):
            _refuse_other_outputs(losses, by)
            return sum(part if part.dim() == 0 else part.sum() for part in parts)
    raise JobError(
        f"the job's loss must return a tensor, or a dict or list of tensors; it returned {type(losses).__name__}"
    )


def _refuse_other_outputs(losses: Any, by: Callable[..., Any] | None) -> None:
    """Where ``loss`` is named among others, it is what a training calls backward() on; to add them up would train on
    logits, or on everything twice."""
    if isinstance(losses, Mapping) and "loss" in losses and len(losses) > 1:
        others = ", ".join(str(name) for name in losses if name != "loss")
        raise JobError(
            f"the job's loss returned 'loss' beside {others}, and the sum of them all would be trained on: return "
            f"output['loss'] alone, or losses under other names{_place(by)}"
        )


def _single(loss: torch.Tensor, by: Callable[..., Any] | None) -> torch.Tensor:
    """What ``loss.backward()`` takes; a training loop that calls it on anything else fails."""
    if loss.numel() == 1:
        return loss.sum() if loss.dim() else loss
    raise JobError(
        f"the job's loss must be one number; it is a tensor of shape {tuple(loss.shape)}, of which PyTorch says «grad "
        f"can be implicitly created only for scalar outputs»; reduce it, with .mean() or .sum(){_place(by)}"
    )


def _place(function: Callable[..., Any] | None) -> str:
    """Where a function of the user's begins; nothing for one that is not written in Python."""
    code = getattr(None if function is None else inspect.unwrap(function), "__code__", None)
    return "" if code is None else f" (in {code.co_name} at {code.co_filename}:{code.co_firstlineno})"
