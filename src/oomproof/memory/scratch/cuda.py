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

_INDEX = 8


def price(device: Device, benchmark: bool = False) -> Price:
    """Prices on a device; ``benchmark`` lets the fastest algorithm win, whatever it takes."""
    tensor_cores = device.capability >= AMPERE or not device.capability[0]

    def price_call(spec: Mapping[str, Any]) -> tuple[int, int, int]:
        if spec["op"] in ("convolution", "convolution_backward"):
            return _convolution(spec, tensor_cores, benchmark)
        return _kernel(spec)

    return price_call


def _convolution(spec: Mapping[str, Any], tensor_cores: bool, benchmark: bool) -> tuple[int, int, int]:
    """(expected, low, high). ``tensor_cores``: fp32 convolutions run on them too, as TF32.

    Tensor-core kernels want channels last: cuDNN converts tensors that are not, into workspace. That is all of x, w and
    y at most; half of it on average fits published figures best. A depthwise convolution may be turned into a matrix
    product (im2col), seen as jumps of kernel area times x. Without tensor cores the fast way for 3 x 3 filters is
    Winograd's, which holds 36 numbers for every 16 of x and y and for every 9 of w.
    """
    x, w, y = (math.prod(spec[name]) * spec["item"] for name in ("x", "w", "y"))
    area = math.prod(spec["w"][2:])
    converted = 0 if spec["channels_last"] else x + w + y
    if spec["groups"] == spec["x"][1] > 1:
        expected, high = 0, max(converted, area * x)
    else:
        expected, high = int(CONVERTED * converted), x + w + y
        if not tensor_cores and spec["dtype"] == "float32":
            expected = 36 * (x + y) // 16 + 4 * w if _winograd(spec) else 0
            high = max(high, expected)
        if benchmark and spec["groups"] == 1 and area > 1 and max(spec["stride"]) == 1:
            high = max(high, min(_fft(spec), LARGEST_FFT))
    return expected, 0, high


def _winograd(spec: Mapping[str, Any]) -> bool:
    dense = spec["groups"] == 1 and max(spec["stride"]) == 1 and max(spec["dilation"]) == 1
    return dense and list(spec["w"][2:]) == [3, 3]


AMPERE = (8, 0)
CONVERTED = 0.5
"""part of x, w and y that convolutions convert on average: fitted, docs/accuracy.md"""
LARGEST_FFT = 8 << 30
_TILE = 32
_TILE_BYTES = _TILE * (_TILE // 2 + 1) * 8
"""a real 32 x 32 tile in the frequency domain: half of the complex numbers, 8 bytes each"""


def _fft(spec: Mapping[str, Any]) -> int:
    """Workspace of a tiled Fourier transform, the thirstiest algorithm that benchmark mode tries."""
    images, channels, *sides = spec["x"]
    filters = spec["y"][1]
    tiles = math.prod(-(-side // max(1, _TILE + 1 - taps)) for side, taps in zip(sides, spec["w"][2:], strict=True))
    return (images * tiles * (channels + filters) + channels * filters) * _TILE_BYTES


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
