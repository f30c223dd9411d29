"""The training loop that is traced, in the same words a person would write it.

The very same loop runs for real in the tests, where its memory is measured.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from oomproof.errors import InputError, JobError
from oomproof.run.torch.frozen_norm import freeze_batchnorm
from oomproof.run.torch.matching import chunked_matching
from oomproof.run.torch.optimizer_state import keep_state
from oomproof.run.torch.recompute import recompute
from oomproof.run.torch.training import OPTIMIZERS, PRECISIONS, Training


@dataclass(frozen=True)
class Pieces:
    """A job in plain pieces. ``step``, where given, is the user's whole step and replaces loss, backward and update."""

    model: Callable[[], torch.nn.Module]
    batch: Callable[[], Any]
    loss: Callable[[torch.nn.Module, Any], Any] | None = None
    optimizer: Callable[[Any], torch.optim.Optimizer] = OPTIMIZERS["sgd"]
    step: Callable[[torch.nn.Module, Any, torch.optim.Optimizer], Any] | None = None


class Loop:
    """Model, batch and optimizer, ready to step."""

    def __init__(self, pieces: Pieces, training: Training) -> None:
        self.pieces, self.training = pieces, training
        self.model = pieces.model()
        if not isinstance(self.model, torch.nn.Module):
            raise JobError(f"the job's model factory must return a torch.nn.Module; it returned {_kind(self.model)}")
        self.model.train()
        if training.freeze_batchnorm:
            freeze_batchnorm(self.model)
        if training.matching == "chunked":
            chunked_matching(self.model)
        if training.channels_last:
            self.model.to(memory_format=torch.channels_last)
        self.scaler = torch.amp.GradScaler("cpu") if training.precision == "fp16" else None
        self.average: AveragedModel | None = None

    def load(self) -> None:
        """Batch and optimizer, once the weights are where they stay."""
        self.batch = self.pieces.batch()
        if self.training.channels_last:
            self.batch = _in_channels_last(self.batch)
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if not parameters:
            raise JobError("the model has no parameter to train (requires_grad is False on all of them)")
        make = OPTIMIZERS.get(self.training.optimizer, self.pieces.optimizer)
        self.optimizer = make(parameters)
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise JobError(
                f"the job's optimizer factory must return a torch.optim.Optimizer; it returned {_kind(self.optimizer)}"
            )
        _update_by(self.optimizer, self.training.update)
        keep_state(self.optimizer, self.training.optimizer_state)
        if self.training.ema:
            self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn())
        recompute(self.model, self.training.checkpoint)

    def step(self, micro_batches: int | None = None) -> None:
        if self.pieces.step is not None:
            self.pieces.step(self.model, self.batch, self.optimizer)
            return
        if self.training.zero_grad != "before_backward":
            self._zero_grad()
        count = micro_batches or self.training.accumulate
        for micro_batch in range(count):
            loss = self._loss() / self.training.accumulate if self.training.accumulate > 1 else self._loss()
            if micro_batch == 0 and self.training.zero_grad == "before_backward":
                self._zero_grad()
            (self.scaler.scale(loss) if self.scaler else loss).backward()
            del loss
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model)

    def _zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=self.training.zero_grad != "keep")

    def _loss(self) -> torch.Tensor:
        assert self.pieces.loss is not None
        half = PRECISIONS[self.training.precision]
        with torch.autocast("cpu", dtype=half) if half else nullcontext():
            return total(self.pieces.loss(self.model, self.batch))


def total(losses: Any) -> torch.Tensor:
    """One number from what a model or loss function returns: a tensor, a dict or list of them, or ``.loss``."""
    if isinstance(losses, torch.Tensor):
        return losses if losses.dim() == 0 else losses.sum()
    if isinstance(getattr(losses, "loss", None), torch.Tensor):
        return losses.loss
    parts = losses.values() if isinstance(losses, Mapping) else losses
    if isinstance(parts, Iterable):
        parts = list(parts)
        if parts and all(isinstance(part, torch.Tensor) for part in parts):
            return sum(part if part.dim() == 0 else part.sum() for part in parts)
    raise JobError(f"the job's loss must return a tensor, or a dict or list of tensors; it returned {_kind(losses)}")


def _update_by(optimizer: torch.optim.Optimizer, update: str) -> None:
    if update == "auto":
        return
    accepted = inspect.signature(type(optimizer).__init__).parameters
    if update != "plain" and update not in accepted:
        raise InputError(f"update={update}: {type(optimizer).__name__} has no {update} form; use auto or plain")
    for group in optimizer.param_groups:
        for form in ("foreach", "fused"):
            if form in accepted:
                group[form] = form == update


def _in_channels_last(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.contiguous(memory_format=torch.channels_last) if batch.dim() == 4 else batch
    if isinstance(batch, Mapping):
        return {key: _in_channels_last(part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)) and not hasattr(batch, "_fields"):
        return type(batch)(_in_channels_last(part) for part in batch)
    return batch


def _kind(value: Any) -> str:
    return f"{type(value).__name__}"
