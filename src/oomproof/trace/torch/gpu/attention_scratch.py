"""What fused attention takes beside its results. In backward the gradient of the queries is summed up in fp32, in whole
tiles, and every row has a number of its own; a wide result in half precision is summed up in fp32 as well.

Read in mha_bwd (flash_api.cpp), in attention_backward.cu and in kernel_backward.h of PyTorch 2.14.
"""

from __future__ import annotations

from typing import Any

import torch

from oomproof.memory.scratch.calls import EFFICIENT_BACKWARD, EFFICIENT_FORWARD, FLASH_BACKWARD

_FLOAT = 4
_ROWS = 128
_SMALL_HEAD, _LARGEST_IN_REGISTERS = 64, 128


def flash_backward(args: Any) -> dict[str, Any]:
    gradient, q = args[0], args[1]
    images, heads, rows, head = q.shape
    rows = _up(rows, _ROWS)
    head = _up(head, 32 if head <= _LARGEST_IN_REGISTERS else 64)
    return _call(FLASH_BACKWARD, images * heads * rows * (head + 1), gradient)


def efficient_forward(args: Any) -> dict[str, Any] | None:
    q, _, v = args[:3]
    if q.element_size() == _FLOAT or v.shape[-1] <= _LARGEST_IN_REGISTERS:
        return None
    return {"op": EFFICIENT_FORWARD, "elements": q.shape[:-1].numel() * v.shape[-1], "item": _FLOAT}


def efficient_backward(args: Any) -> dict[str, Any]:
    gradient, q, k, v = args[:4]
    images, heads, rows, head = q.shape
    tile = _SMALL_HEAD if head <= _SMALL_HEAD else _ROWS
    accumulated = _up(rows, tile) * _up(head, tile)
    if q.element_size() < _FLOAT and head > _LARGEST_IN_REGISTERS:  # those of keys and values do not stay in registers
        accumulated += _up(k.shape[2], tile) * (_up(head, tile) + _up(v.shape[-1], tile))
    if q.element_size() == _FLOAT:  # out times its gradient is written out first, and gone before the sums begin
        accumulated = max(accumulated, rows * v.shape[-1]) + rows
    return _call(EFFICIENT_BACKWARD, images * heads * (accumulated + rows), gradient)


def _call(name: str, numbers: int, gradient: torch.Tensor) -> dict[str, Any]:
    """Kernels read a gradient whose heads lie side by side, as attention layers leave it; any other is copied."""
    copied = 0 if gradient.transpose(1, 2).is_contiguous() else gradient.numel() * gradient.element_size()
    return {"op": name, "elements": numbers, "item": _FLOAT, "copied": copied}


def _up(number: int, tile: int) -> int:
    return -(-number // tile) * tile
