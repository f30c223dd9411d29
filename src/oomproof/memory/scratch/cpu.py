"""The CPU: oneDNN lays tensors out anew around its convolutions.

Measured op by op with torch 2.14 (oneDNN 3.12) on an AVX2 machine, with one thread and with two: a convolution works on
copies whose channels are blocked, and writes the result back into a plain tensor. A weight gradient whose taps are
spread (dilation), many (jit_avx2_conv_kernel_f32.cpp: 14 in a row) or more than the image has rows goes through im2col
and takes four times the weight for its sum, because gemm_convolution_utils.cpp books bytes as if they were numbers.
Tensors that are channels_last already are read as they are; only weights are copied, up to three times. What PyTorch
computes by itself is in cpu_columns.py.
The tracer counts the plain results before the call, so what is priced here is what comes on top of them.
"""

from __future__ import annotations

import math

from oomproof.memory.scratch import Price
from oomproof.memory.scratch.calls import LAID_OUT, Call, Convolution, Kernel, Shape
from oomproof.memory.scratch.cpu_columns import price_columns, takes_columns
from oomproof.memory.scratch.everywhere import price_everywhere

_BLOCK = 8
_FLAT = 3
"""channels of an image, for which there are kernels that read it as it is"""
_FLOAT = 4
_SMALL_OUTPUT = 256
"""pixels a thread, below which each has an im2col buffer of its own (gemm_convolution_utils.cpp)"""
_MANY_TAPS = 14
"""in a row, from which there is no jitted kernel for the weight's gradient (jit_avx2_conv_kernel_f32.cpp)"""
_LARGE_AREA = 9
"""taps above which a channels_last depthwise weight gradient copies its input; seen at 49, not at 9"""
_BARRIERS = 8 << 10
"""bytes that threads take to wait for each other, where they share a weight gradient; 4160 seen for each of two"""


def price(threads: int, *, half: bool = True) -> Price:
    """``half``: oneDNN takes bf16 on this CPU, and its prices are those of fp32."""

    def price_call(call: Call) -> tuple[int, int, int]:
        if not isinstance(call, Convolution):
            return _kernel(call) if isinstance(call, Kernel) else (0, 0, 0)
        if (call.item < _FLOAT and not half) or takes_columns(call, threads):
            columns = price_columns(call) + call.copied
            return columns, 0, columns
        expected = call.copied + (_backward(call, threads) if call.wants else _forward(call))
        # Threads that share a weight gradient may each hold a part of it.
        return expected, 0, expected + threads * (_weight_bytes(call, pad_all=True) + _BARRIERS)

    return price_call


def _kernel(call: Kernel) -> tuple[int, int, int]:
    if call.op in LAID_OUT:
        return call.copied, 0, call.copied
    return price_everywhere(call) or (0, 0, 0)


def _forward(call: Convolution) -> int:
    w, y = _weight_bytes(call), _pad_channels(call.y)
    x = _pad_channels(call.x) if call.x[1] >= _BLOCK else 0
    if call.channels_last:
        return w if call.depthwise else 2 * w
    working = x + w + y - call.y_bytes
    return max(working, 2 * call.y_bytes if call.transposed else y)


def _backward(call: Convolution, threads: int) -> int:
    flat = call.x[1] == _FLAT
    w, y = _weight_bytes(call, pad_all=not flat), _pad_channels(call.y)
    x = 0 if flat else _pad_channels(call.x)
    wants_x, wants_w, *_ = call.wants
    if call.channels_last:
        return w + (4 * x if call.area > _LARGE_AREA else 0) if call.depthwise else 3 * w
    by_columns = _im2col(call, threads) if wants_w and _has_no_kernel(call) else 0
    if by_columns and _spread(call):
        return by_columns
    plain_x, plain_w = call.x_bytes * wants_x, call.w_bytes * wants_w
    copies = 2 if max(call.stride) > 1 and not call.depthwise else 1
    for_x = max(y + w + x - plain_x - plain_w, copies * x - plain_w) if wants_x else 0
    for_w = max(y + x + w - plain_w, w) if wants_w else 0
    return max(for_x, by_columns or for_w, 0)


def _has_no_kernel(call: Convolution) -> bool:
    """Whether no jitted kernel makes this weight's gradient."""
    many_taps = call.w[-1] >= _MANY_TAPS and not call.depthwise
    return not call.transposed and (_spread(call) or many_taps or _is_lower_than_filter(call))


def _is_lower_than_filter(call: Convolution) -> bool:
    """``jcp.kh <= jcp.ih`` is asked there; an image may be narrower than the filter."""
    return len(call.w) > 3 and call.w[-2] > call.x[-2]


def _im2col(call: Convolution, threads: int) -> int:
    pixels = math.prod(call.y[2:])
    each = pixels // threads < _SMALL_OUTPUT and (call.x[0] > 1 or call.groups > 2)
    columns = call.x[1] // call.groups * call.area * pixels * _FLOAT
    return (threads if each else 1) * (columns + 4 * math.prod(call.w) * _FLOAT)


def _weight_bytes(call: Convolution, *, pad_all: bool = False) -> int:
    """A weight in blocks of channels; with ``pad_all`` also where it has only a few of them, as its gradient has."""
    channels = call.w[1]
    if channels >= _BLOCK or (pad_all and (channels > 1 or call.groups == 1)):
        channels = _up(channels)
    return _up(call.w[0]) * channels * call.area * _FLOAT


def _pad_channels(shape: Shape) -> int:
    return shape[0] * _up(shape[1]) * math.prod(shape[2:]) * _FLOAT


def _spread(call: Convolution) -> bool:
    return max(call.dilation) > 1 and max(call.w[2:]) > 1


def _up(channels: int) -> int:
    return -(-channels // _BLOCK) * _BLOCK
