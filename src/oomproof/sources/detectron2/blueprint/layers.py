"""Convolutions with a norm and an activation of their own, and the kinds of norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.errors import InputError

Activation = Callable[[torch.Tensor], torch.Tensor]
GROUPS = 32


class Feature(NamedTuple):
    """A map that a backbone gives."""

    channels: int
    stride: int


class FrozenBatchNorm2d(nn.Module):
    """A norm without anything to train. Where a gradient passes it is two operations, which keep no copy of x."""

    weight: torch.Tensor
    bias: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.eps = 1e-5
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.requires_grad:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, eps=self.eps)
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        bias = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1).to(x.dtype) + bias.reshape(1, -1, 1, 1).to(x.dtype)


class SyncBatchNorm(nn.BatchNorm2d):
    """Keeps what BatchNorm2d keeps: its input, a mean and a deviation. (PyTorch's own runs on GPUs only.)"""


class LayerNorm(nn.Module):
    """A norm over the channels of each pixel, by plain operations, all of which keep what backward needs."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.eps = 1e-6
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + self.eps)
        x = self.weight[:, None, None] * x + self.bias[:, None, None]
        return x


_NORMS: dict[str, Callable[[int], nn.Module]] = {
    "BN": nn.BatchNorm2d,
    "SyncBN": SyncBatchNorm,
    "nnSyncBN": SyncBatchNorm,
    "naiveSyncBN": SyncBatchNorm,
    "FrozenBN": FrozenBatchNorm2d,
    "GN": lambda channels: nn.GroupNorm(GROUPS, channels),
    "LN": LayerNorm,
}


def norm(kind: str, channels: int) -> nn.Module | None:
    """The norm of that name, or None for the empty name."""
    if not kind:
        return None
    if kind not in _NORMS:
        raise InputError(
            f"norm '{kind}' has no blueprint; expected one of {', '.join(_NORMS)} or ''. Install Detectron2 beside "
            "oomproof to trace the real model"
        )
    return _NORMS[kind](channels)


class Conv2d(nn.Conv2d):
    """A convolution, then its norm, then its activation; the names are those of Detectron2's checkpoints."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        norm: nn.Module | None = None,
        activation: Activation | None = None,
    ) -> None:
        padding = dilation * (size - 1) // 2
        super().__init__(
            inputs, outputs, size, stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias
        )
        self.norm = norm
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        if self.norm is not None:
            x = self.norm(x)
        if self.activation is not None:
            x = self.activation(x)
        return x


def freeze(module: nn.Module) -> None:
    """No part is trained any more, and batch norms keep their statistics."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, FrozenBatchNorm2d(child.num_features))
