"""Forms: how tensors that fill their memory lie in it."""

from __future__ import annotations

from typing import Any

import torch

SAME = object()
"""the result is the first argument, written to"""
NUMBERS = (bool, int, float)
"""plain numbers among an operation's arguments"""


class Form:
    """A tensor that fills its memory: shape, strides and type."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, shape: Any, strides: Any, dtype: torch.dtype) -> None:
        self.shape, self.strides, self.dtype = shape, strides, dtype


def form_of(tensor: torch.Tensor) -> Form:
    return Form(tensor.shape, tensor.stride(), tensor.dtype)


def in_order(shape: Any) -> tuple[int, ...]:
    """Strides of a tensor that lies in memory row by row."""
    strides, step = [], 1
    for side in reversed(shape):
        strides.append(step)
        step *= max(1, side)
    return tuple(reversed(strides))


def _channels_last(shape: Any) -> tuple[int, ...]:
    images, channels, *sides = shape
    *inner, last = in_order((images, *sides, channels))
    return inner[0], last, *inner[1:]


def natural(tensor: torch.Tensor) -> bool:
    strides, shape = tensor.stride(), tensor.shape
    return strides == in_order(shape) or (len(shape) == 4 and min(shape) > 1 and strides == _channels_last(shape))


def alike(tensors: list[torch.Tensor]) -> bool:
    """All of one shape, one order in memory and one floating type."""
    first = tensors[0]
    if not first.dtype.is_floating_point or not natural(first):
        return False
    form = first.shape, first.stride(), first.dtype
    return all((other.shape, other.stride(), other.dtype) == form for other in tensors[1:])


def rows(*tensors: torch.Tensor) -> bool:
    """All of one type, none empty, each lying in memory row by row."""
    kind = tensors[0].dtype
    return all(each.dtype is kind and each.numel() and each.stride() == in_order(each.shape) for each in tensors)
