"""Convolutions that PyTorch computes on the CPU by its own kernels: it lays images out as columns (im2col).

Read in PyTorch's ConvParams::use_mkldnn and measured op by op with torch 2.14: it does without oneDNN for a 1 x 1
filter where one thread has fewer than 16 images, and for one small image. The same kernels take what oneDNN does not:
bf16 on AVX2.
"""

from __future__ import annotations

import math

from oomproof.memory.scratch.calls import Convolution

_MANY_IMAGES = 16
_SMALL_IMAGE = 20480
"""numbers"""
_SMALL_FILTER = 3


def takes_columns(call: Convolution, threads: int) -> bool:
    """Whether PyTorch does without oneDNN, which could compute it."""
    if call.transposed:
        return False
    plain = max(call.stride) == 1 and max(call.dilation) == 1
    if call.area == 1 and plain and threads == 1 and call.x[0] < _MANY_IMAGES:
        return True
    large_filter = len(call.w) > 3 and min(call.w[-2:]) > _SMALL_FILTER
    return call.groups == 1 and call.x[0] == 1 and not large_filter and math.prod(call.x) <= _SMALL_IMAGE


def price_columns(call: Convolution) -> int:
    """What slow_conv2d and slow_conv_transpose2d take. Groups are computed one after another, each from a copy of its
    part, and their results are put together at the end."""
    wants_x, wants_w = call.wants[:2] if call.wants else (False, True)
    if call.transposed:
        columns = call.x[0] * call.w[1] * call.area * math.prod(call.x[2:]) * call.item
        return columns // call.x[0] if call.wants else columns  # backward goes image by image
    is_view = call.area == 1 and max(call.stride) == 1
    columns = 0 if is_view else call.x[0] * call.w[1] * call.area * math.prod(call.y[2:]) * call.item
    if call.groups == 1:
        return columns if wants_w else 0
    part_of_x, part_of_y = call.x_bytes // call.groups, call.y_bytes // call.groups
    if not call.wants:
        return max(columns + part_of_x, call.y_bytes)
    return max(columns + part_of_x + part_of_y if wants_w else 0, call.x_bytes if wants_x else 0)
