"""PyTorch as it was when Detectron2's model zoo was measured (1.3, in 2019), as far as memory is concerned.

Until 1.10 a ReLU that is not in place kept its input for backward, beside its output, which the next layer keeps
(pytorch/pytorch pull request 63089), and a log-softmax kept its input beside its output (pull request 65242).
Optimizers zeroed gradients in place, which is the setting ``zero_grad=keep``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional as F


@dataclass(frozen=True)
class OldPyTorch:
    """A job, traced as an old PyTorch would have run it."""

    job: Any

    @property
    def settings(self) -> Any:
        return self.job.settings

    def trace(self, request: Any) -> Any:
        with _old_functions():
            return self.job.trace(request)


@contextmanager
def _old_functions() -> Iterator[None]:
    new_cross_entropy = F.cross_entropy

    def relu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        return torch.relu_(x) if inplace else _Relu.apply(x)

    def cross_entropy(logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return new_cross_entropy(_Kept.apply(logits), *args, **kwargs)

    with patch.object(F, "relu", relu), patch.object(F, "cross_entropy", cross_entropy):
        yield


class _Kept(torch.autograd.Function):
    """x as it is, kept until the gradient passes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.relu(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, x, 0)
