"""CUDA: workspaces of cuDNN's convolutions and scratch of sorting kernels.

PyTorch asks cuDNN's heuristics for an algorithm and hands it workspace from its own allocator. Which algorithm is
chosen cannot be known without the GPU; the sizes below are those of the common families, and docs/accuracy.md shows
how far they carry.
"""

from __future__ import annotations

import math

from oomproof.memory.devices import Device
from oomproof.memory.scratch import Price
from oomproof.memory.scratch.calls import Convolution, Kernel

AMPERE = (8, 0)
CONVERTED = 0.5
"""part of x, w and y that convolutions convert on average: fitted, docs/accuracy.md"""
LARGEST_IM2COL = 9
"""copies of x in a depthwise im2col: jumps of that size are seen with 3 x 3 filters, none with larger ones"""
LARGEST_FFT = 8 << 30
_INDEX = 8
_TILE = 32
_TILE_BYTES = _TILE * (_TILE // 2 + 1) * 8
"""a real 32 x 32 tile in the frequency domain: half of the complex numbers, 8 bytes each"""


def price(device: Device, benchmark: bool = False) -> Price:
    """Prices on a device; ``benchmark`` lets the fastest algorithm win, whatever it takes."""
    tensor_cores = device.capability >= AMPERE or not device.capability[0]

    def price_call(call: Convolution | Kernel) -> tuple[int, int, int]:
        return _kernel(call) if isinstance(call, Kernel) else _convolution(call, tensor_cores, benchmark)

    return price_call


def _convolution(call: Convolution, tensor_cores: bool, benchmark: bool) -> tuple[int, int, int]:
    """(expected, low, high). ``tensor_cores``: fp32 convolutions run on them too, as TF32.

    Tensor-core kernels want channels last: cuDNN converts tensors that are not, into workspace. That is all of x, w and
    y at most; half of it on average fits published figures best. A depthwise convolution may be turned into a matrix
    product (im2col), seen as jumps of kernel area times x. Without tensor cores the fast way for 3 x 3 filters is
    Winograd's, which holds 36 numbers for every 16 of x and y and for every 9 of w.
    """
    everything = call.x_bytes + call.w_bytes + call.y_bytes
    if call.depthwise:
        return 0, 0, max(everything, min(call.area, LARGEST_IM2COL) * call.x_bytes)
    expected, high = int(CONVERTED * everything), everything
    if call.channels_last:
        expected = 0
    if not tensor_cores and call.dtype == "float32":
        expected = 36 * (call.x_bytes + call.y_bytes) // 16 + 4 * call.w_bytes if _plain_3x3(call) else 0
        high = max(high, expected)
    if benchmark and call.groups == 1 and call.area > 1 and max(call.stride) == 1:
        high = max(high, min(_fft(call), LARGEST_FFT))
    return expected, 0, high


def _plain_3x3(call: Convolution) -> bool:
    return call.groups == 1 and max(call.stride) == max(call.dilation) == 1 and call.w[2:] == (3, 3)


def _fft(call: Convolution) -> int:
    """Workspace of a tiled Fourier transform, the thirstiest algorithm that benchmark mode tries."""
    images, channels, filters = call.x[0], call.x[1], call.y[1]
    tiles = math.prod(-(-side // max(1, _TILE + 1 - taps)) for side, taps in zip(call.x[2:], call.w[2:], strict=True))
    return (images * tiles * (channels + filters) + channels * filters) * _TILE_BYTES


def _kernel(call: Kernel) -> tuple[int, int, int]:
    """Scratch of PyTorch's own kernels: known from what they do, not measured here."""
    if call.op == "nms":  # one bit for every pair of boxes
        pairs = call.elements * -(-call.elements // 64) * _INDEX
        return pairs, pairs, pairs
    if call.op in ("nonzero", "cumsum", "masked_select", "logcumsumexp"):
        return 0, 0, call.elements * _INDEX
    keys = call.elements * (call.item + _INDEX)  # radix sort keeps a second buffer of keys and indices
    return keys, 0, 2 * keys
