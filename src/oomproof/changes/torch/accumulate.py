"""Gradients of several batches for one update, in a training loop that makes one for each.

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
oomproof.accumulate(optimizer, 4)       # batches are a quarter of what they were
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any

import torch

from oomproof.errors import InputError, JobError


def accumulate(optimizer: torch.optim.Optimizer, batches: int) -> None:
    """From now on, ``optimizer.step()`` updates at every ``batches``-th call, by the mean of the gradients that it
    finds at each. The same as with one batch of all their images where the loss is a mean over images and nothing else
    goes by single batches: no batch normalisation, no clipping, no learning rate that changes with every step."""
    if not isinstance(batches, int) or isinstance(batches, bool) or batches < 1:
        raise InputError(f"accumulate: the number of batches must be a whole number from 1 on; got {batches!r}")
    if batches == 1:
        return
    accumulating = _Accumulating(optimizer, batches)

    def step(optimizer: torch.optim.Optimizer, closure: Any = None) -> Any:
        return accumulating.step(closure)

    # A bound method: schedulers look for its function (torch 2.14).
    optimizer.step = MethodType(step, optimizer)


class _Accumulating:
    """Takes the gradients of each batch away, so that whatever the loop does with them in between (dropping them, a
    GradScaler that unscales what it finds) is done to those of one batch."""

    def __init__(self, optimizer: torch.optim.Optimizer, batches: int) -> None:
        self.optimizer, self.batches, self.count = optimizer, batches, 0
        self._step = optimizer.step
        self._sums: dict[torch.Tensor, torch.Tensor] = {}

    def step(self, closure: Any) -> Any:
        if closure is not None:
            raise JobError("accumulate: an optimizer that is given a closure cannot add gradients up")
        if getattr(self.optimizer, "grad_scale", None) is not None:
            raise JobError("accumulate: a fused optimizer under a GradScaler cannot add gradients up; leave out fused")
        for parameter in self._parameters():
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                held = self._sums.get(parameter)
                self._sums[parameter] = gradient if held is None else held.add_(gradient)
        self.count = (self.count + 1) % self.batches
        if self.count:
            return None
        for parameter, total in self._sums.items():
            parameter.grad = total.div_(self.batches)
        self._sums.clear()
        return self._step()

    def _parameters(self) -> Iterator[torch.Tensor]:
        for group in self.optimizer.param_groups:
            yield from group["params"]
