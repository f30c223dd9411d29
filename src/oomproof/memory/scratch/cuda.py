"""CUDA: workspaces of cuDNN's convolutions and scratch of sorting kernels.

PyTorch asks cuDNN's heuristics for an algorithm and hands it workspace from its own allocator. Which algorithm is
chosen cannot be known without the GPU; the sizes below are those of the common families, and docs/accuracy.md shows
how far they carry.
"""

from __future__ import annotations

import math

from oomproof.memory.cards.devices import Device
from oomproof.memory.scratch import Price, recurrent
from oomproof.memory.scratch.calls import (
    FACTORISED,
    FOURIER,
    GATHERED,
    LAID_OUT,
    SOFTMAX_BACKWARD,
    Call,
    Convolution,
    Kernel,
)
from oomproof.memory.scratch.everywhere import price_everywhere
from oomproof.memory.scratch.recurrent import Recurrent

AMPERE = (8, 0)
CONVERTED = 0.5
"""part of x, w and y that convolutions convert on average: fitted, docs/accuracy.md"""
LARGEST_IM2COL = 9
"""taps of a depthwise im2col: jumps of that size are seen with 3 x 3 filters, none with larger ones"""
LARGEST_FOURIER = 8 << 30
"""HGNetV2-B5 and -B6 jump by what one transform of 6 to 7.6 GiB leads to (docs/accuracy.md); more was not seen"""
LARGEST_OF_TENSORFLOW = 4 << 30
"""TensorFlow tries no convolution that wants more (TF_CUDNN_WORKSPACE_LIMIT_IN_MB, 4096 unless it is set)"""
_INDEX = 8
_WORK_AREAS = {**dict.fromkeys(FOURIER, 3), **dict.fromkeys(FACTORISED, 4)}
"""what libraries work in, as many times what they are given: at most, and one time expected. cuFFT's area is as large
as its data, which are also copied where axes are permuted; cuSOLVER is given a copy by columns, and no formula tells
what it takes beside it. Both are guesses."""
_SORTS = {"topk": 3, "_unique2": 4, "unique_dim": 4, "unique_consecutive": 4}
"""buffers of keys and indices at most, beside one of indices: two where a few long rows are sorted as one
(SortStable.cu); a third where few and long rows are sorted whole for their largest (TensorTopK.cpp); results as long as
what they are of, and places, where equal ones are dropped (Unique.cu)"""


def price(device: Device, benchmark: bool = False, largest: int = LARGEST_FOURIER) -> Price:
    """Prices on a device; ``benchmark`` lets the fastest algorithm win, whatever it takes up to ``largest`` bytes."""
    tensor_cores = device.capability >= AMPERE or not device.capability[0]

    def price_call(call: Call) -> tuple[int, int, int]:
        if isinstance(call, Recurrent):
            return recurrent.price(call)
        return (
            price_everywhere(call) or _kernel(call)
            if isinstance(call, Kernel)
            else _convolution(call, tensor_cores, largest if benchmark else 0)
        )

    return price_call


def _convolution(call: Convolution, tensor_cores: bool, largest: int) -> tuple[int, int, int]:
    """(expected, low, high). ``tensor_cores``: fp32 convolutions run on them too, as TF32. ``largest``: the most that a
    Fourier transform may take where algorithms are tried; 0: they are not.

    Tensor-core kernels want channels last: cuDNN converts tensors that are not, into workspace. That is all of x, w and
    y at most; half of it on average fits published figures best. A depthwise convolution may be turned into a matrix
    product (im2col), seen as jumps. Without tensor cores the fast way for 3 x 3 filters is Winograd's.
    """
    everything = call.x_bytes + call.w_bytes + call.y_bytes
    if call.depthwise:
        expected, high = 0, max(everything, min(call.area, LARGEST_IM2COL) * _column(call))
    elif not tensor_cores and call.dtype == "float32":
        expected = _winograd(call) if _plain_3x3(call) else 0
        high = max(everything, expected)
    else:
        expected, high = 0 if call.channels_last else int(CONVERTED * everything), everything
    high = max(high, _thirstiest(call, largest)) if largest else high
    return expected + call.copied, call.copied, high + call.copied


def _winograd(call: Convolution) -> int:
    """36 numbers for every tile of 4 x 4 pixels in x and y, tiles at the edges being whole, and for every 9 of w."""
    tiles = call.y[0] * math.prod(-(-pixels // 4) for pixels in call.y[2:])
    return 36 * tiles * (call.x[1] + call.y[1]) * call.item + 4 * call.w_bytes


def _plain_3x3(call: Convolution) -> bool:
    return call.groups == 1 and max(call.stride) == max(call.dilation) == 1 and call.w[2:] == (3, 3)


def _column(call: Convolution) -> int:
    """Bytes of an im2col for each tap of the filter: every channel of the wide side at every place where the filter is
    put down, which strides make few."""
    places, channels = (call.x, call.y[1]) if call.transposed else (call.y, call.x[1])
    return places[0] * channels * math.prod(places[2:]) * call.item


def _thirstiest(call: Convolution, largest: int) -> int:
    """The largest workspace of the algorithms that benchmark mode tries: a matrix product by im2col where there are
    groups, and a tiled Fourier transform where filters move by one."""
    im2col = call.area * _column(call) if call.groups > 1 else 0
    fourier = min(_fourier(call), largest) if max(call.stride) == 1 else 0
    return max(im2col, fourier)


def _fourier(call: Convolution) -> int:
    """x, y and w in the frequency domain, tile by tile: half as many complex numbers as a tile has pixels."""
    side = 32 if call.area > 1 else 16
    tiles = math.prod(
        -(-pixels // max(1, side + 1 - taps)) for pixels, taps in zip(call.x[2:], call.w[2:], strict=True)
    )
    images, channels, filters = call.x[0], call.x[1], call.y[1]
    spectra = images * tiles * (channels + filters) + channels * filters // call.groups
    return spectra * side * (side // 2 + 1) * 8


def _kernel(call: Kernel) -> tuple[int, int, int]:
    """Scratch of PyTorch's own kernels: known from what they do, not measured here."""
    if call.op == "nms":  # one bit for every pair of boxes
        pairs = call.elements * -(-call.elements // 64) * _INDEX
        return pairs, pairs, pairs
    given = call.elements * call.item
    if call.op in ("_ctc_loss_backward", SOFTMAX_BACKWARD):  # a table of all elements is written out for sure
        return given, given, given + call.copied
    if call.op in GATHERED | LAID_OUT:
        return given + call.copied, 0, given + call.copied
    if call.op in _WORK_AREAS:
        return given, 0, _WORK_AREAS[call.op] * given
    if call.op in ("nonzero", "cumsum", "logcumsumexp"):
        return 0, 0, call.elements * _INDEX
    keys = call.elements * (call.item + _INDEX)  # radix sort keeps a second buffer of keys and indices
    return keys, 0, _SORTS.get(call.op, 2) * keys + call.elements * _INDEX
