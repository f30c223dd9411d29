"""The passes of one step: forward and backward for each micro-batch, then one update.

The tracer and the user's training run this very code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from oomproof.changes.torch.frozen_norm import freeze_batchnorm
from oomproof.changes.torch.gradients import at_once
from oomproof.changes.torch.losses import total
from oomproof.changes.torch.matching import chunk_matching
from oomproof.changes.torch.optimizer_state import keep_state
from oomproof.changes.torch.recompute import recompute
from oomproof.changes.torch.training import CHOICES, PRECISIONS, Training
from oomproof.changes.torch.trees import map_tensors
from oomproof.errors import CannotDo, InputError
from oomproof.frameworks.torch import unwrap_compiled

Loss = Callable[[torch.nn.Module, Any], Any]
"""loss(model, batch): a tensor, or a dict or list of tensors"""
Share = float | Mapping[str, float]
"""what a micro-batch's losses count for: all alike, or each by its name"""


def unwrap_model(model: torch.nn.Module) -> torch.nn.Module:
    """The user's own model, whose modules the settings name, inside what compiles it or spreads it over GPUs."""
    model = unwrap_compiled(model)
    while isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        model = unwrap_compiled(model.module)
    return model


def prepare_model(model: torch.nn.Module, training: Training) -> None:
    """What must be done to a model before its weights are counted or handed to an optimizer."""
    model = unwrap_model(model)
    if training.freeze_batchnorm:
        freeze_batchnorm(model)
    if training.matching == "chunked":
        chunk_matching(model)
    if training.channels_last:
        model.to(memory_format=torch.channels_last)


class Passes:
    """``begin``, then ``backward`` for each micro-batch, then ``update``."""

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: Loss | None, training: Training
    ) -> None:
        self.model, self.optimizer, self.loss, self.training = model, optimizer, loss, training
        update_by(optimizer, training.update)
        self._at_once = at_once(model, optimizer, training)
        keep_state(optimizer, training.optimizer_state)
        own = unwrap_model(model)
        self.average = AveragedModel(own, multi_avg_fn=get_ema_multi_avg_fn()) if training.ema else None
        recompute(own, training.checkpoint)  # last: the average must not be computed again
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type) if training.precision == "fp16" else None
        self._first = True

    def begin(self) -> None:
        self._first = True
        if self.training.zero_grad != "before_backward":
            self._zero_grad()

    def resume(self) -> None:
        """As after earlier micro-batches, whose gradients are there."""
        self._first = False

    def release(self) -> None:
        """The model's parameters are as they were: nobody waits for their gradients."""
        if self._at_once is not None:
            self._at_once.release()

    def backward(self, batch: Any, share: Share = 1.0, last: bool = True) -> torch.Tensor:
        """Adds the gradients of ``share`` of a micro-batch's loss; returns that part of the loss. GPUs exchange their
        gradients with the ``last`` one only."""
        if self._at_once is not None:
            self._at_once.expect(last)
        silent = getattr(self.model, "no_sync", nullcontext)
        with nullcontext() if last else silent():
            loss = self._forward(batch, share)
            if self._first and self.training.zero_grad == "before_backward":
                self._zero_grad()
            self._first = False
            (self.scaler.scale(loss) if self.scaler else loss).backward()
        return loss.detach()

    def update(self) -> None:
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(unwrap_model(self.model))

    def losses(self, batch: Any) -> Any:
        """What the loss function returns, in the precision that is trained in."""
        assert self.loss is not None
        half = PRECISIONS[self.training.precision]
        with torch.autocast(self.device.type, dtype=half) if half else nullcontext():
            return self.loss(self.model, batch)

    def _forward(self, batch: Any, share: Share) -> torch.Tensor:
        losses = self.losses(batch)
        if isinstance(share, Mapping):
            return total({name: loss * share[name] for name, loss in losses.items()}, self.loss)
        whole = total(losses, self.loss)
        return whole if share == 1 else whole * share

    def _zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=self.training.zero_grad != "keep")


def check_training(training: Training) -> Training:
    """Refuses values that no setting has; texts on a command line are checked before, settings in code are not."""
    for name, choices in CHOICES.items():
        if getattr(training, name) not in choices:
            raise InputError(f"{name} must be one of {', '.join(choices)}; got '{getattr(training, name)}'")
    for name in ("channels_last", "ema", "freeze_batchnorm"):
        if not isinstance(getattr(training, name), bool):
            raise InputError(f"{name} must be True or False; got {getattr(training, name)!r}")
    if not isinstance(training.accumulate, int) or training.accumulate < 1:
        raise InputError(f"accumulate must be a whole number from 1 on; got {training.accumulate!r}")
    return training


def update_by(optimizer: torch.optim.Optimizer, update: str) -> None:
    """The form of the update: all parameters at once (foreach), in one kernel (fused), or one by one (plain)."""
    if update == "auto":
        return
    accepted = inspect.signature(type(optimizer).__init__).parameters
    if update != "plain" and update not in accepted:
        raise CannotDo(f"update={update}: {type(optimizer).__name__} has no {update} form; use auto or plain")
    for group in optimizer.param_groups:
        for form in ("foreach", "fused"):
            if form in accepted:
                group[form] = form == update


def in_channels_last(batch: Any) -> Any:
    """The batch with its 4-D tensors in channels_last memory format."""
    return map_tensors(
        lambda tensor: tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor, batch
    )
