"""The CPU: oneDNN lays tensors out anew around its convolutions.

Measured op by op with torch 2.14 on an AVX2 machine: a convolution works on copies whose channels are blocked, and
writes the result back into a plain tensor; one whose taps are spread (dilation) goes through im2col and adds up its
weight gradient in four parts. Tensors that are channels_last already are read as they are; only weights are copied,
up to three times. In bf16, which oneDNN does not take on AVX2, PyTorch's own kernels lay out the whole batch as columns
(im2col): for a 3 x 3 convolution nine times its input.
The tracer counts the plain results before the call, so what is priced here is what comes on top of them.
"""

from __future__ import annotations

import math

from oomproof.memory.scratch import Price
from oomproof.memory.scratch.calls import Call, Convolution, Shape

_BLOCK = 8
_FLOAT = 4
_SMALL_OUTPUT = 512
"""pixels below which each thread has an im2col buffer of its own; seen at 361 and 400, not at 1024"""
_LARGE_AREA = 9
"""taps above which a channels_last depthwise weight gradient copies its input; seen at 49, not at 9"""


def price(threads: int, *, half: bool = True) -> Price:
    """``half``: oneDNN takes bf16 on this CPU, and its prices are those of fp32."""

    def price_call(call: Call) -> tuple[int, int, int]:
        if not isinstance(call, Convolution):
            return 0, 0, 0
        if call.item < _FLOAT and not half:
            columns = _columns(call)
            return columns, 0, columns
        expected = _backward(call, threads) if call.wants else _forward(call)
        # Threads that share a weight gradient may each hold a part of it.
        return expected, 0, expected + threads * call.w_bytes

    return price_call


def _forward(call: Convolution) -> int:
    x, w, y = _block_bytes(call)
    if call.channels_last:
        return w if call.depthwise else 2 * w
    working = x + w + y - call.y_bytes
    return max(working, 2 * call.y_bytes if call.transposed else y)


def _backward(call: Convolution, threads: int) -> int:
    x, w, y = _block_bytes(call)
    wants_x, wants_w, *_ = call.wants
    if call.channels_last:
        return w + (4 * x if call.area > _LARGE_AREA else 0) if call.depthwise else 3 * w
    if _spread(call) and not call.transposed:
        small = math.prod(call.y[2:]) < _SMALL_OUTPUT
        return (min(threads, call.x[0]) if small else 1) * (_im2col(call) + 4 * w)
    plain_x, plain_w = call.x_bytes * wants_x, call.w_bytes * wants_w
    copies = 2 if max(call.stride) > 1 and not call.depthwise else 1
    for_x = max(y + w + x - plain_x - plain_w, copies * x - plain_w) if wants_x else 0
    for_w = max(y + x + w - plain_w, w) if wants_w else 0
    return max(for_x, for_w, 0)


def _columns(call: Convolution) -> int:
    """What slow_conv2d and slow_conv_transpose2d take, with copies of each group where there are several."""
    wants_w = not call.wants or call.wants[1]
    if call.transposed:
        columns = call.x[0] * call.w[1] * call.area * math.prod(call.x[2:]) * call.item
        return columns // call.x[0] if call.wants else columns  # backward goes image by image
    is_view = call.area == 1 and max(call.stride) == 1
    columns = 0 if is_view else call.x[0] * call.w[1] * call.area * math.prod(call.y[2:]) * call.item
    if call.groups == 1:
        return columns if wants_w else 0
    parts = (call.y_bytes + (call.x_bytes if call.wants else 0)) // call.groups
    return max(columns + parts if wants_w else 0, call.x_bytes if call.wants and call.wants[0] else 0)


def _block_bytes(call: Convolution) -> tuple[int, int, int]:
    """Bytes of x, w and y with channels padded to whole blocks; an input of a few channels stays as it is."""

    def pad_channels(shape: Shape) -> int:
        return shape[0] * _up(shape[1]) * math.prod(shape[2:]) * _FLOAT

    weight = _up(call.w[0]) * (_up(call.w[1]) if call.w[1] > 1 else 1) * call.area * _FLOAT
    return pad_channels(call.x) if call.x[1] >= _BLOCK else 0, weight, pad_channels(call.y)


def _spread(call: Convolution) -> bool:
    return max(call.dilation) > 1 and max(call.w[2:]) > 1


def _im2col(call: Convolution) -> int:
    return call.x[1] // call.groups * call.area * math.prod(call.y[2:]) * _FLOAT


def _up(channels: int) -> int:
    return -(-channels // _BLOCK) * _BLOCK
