"""The CPU: oneDNN lays tensors out anew around its convolutions.

Measured op by op with torch 2.14 on an AVX2 machine: a convolution works on copies whose channels are blocked, and
writes the result back into a plain tensor; one whose taps are spread (dilation) goes through im2col, one buffer a thread.
Tensors that are channels_last already are read as they are; only weights are copied, up to three times.
The tracer counts the plain results before the call, so what is priced here is what comes on top of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from oomproof.memory.scratch import Price

_BLOCK = 8
_FLOAT = 4
_SMALL_OUTPUT = 512
"""pixels; seen at 361 and 400, not at 1024"""


def price(threads: int) -> Price:
    def price_call(spec: Mapping[str, Any]) -> tuple[int, int, int]:
        if spec["op"] == "convolution":
            expected = _forward(spec)
        elif spec["op"] == "convolution_backward":
            expected = _backward(spec, threads)
        else:
            return 0, 0, 0
        return expected, 0, expected + _reduction(spec, threads)

    return price_call


def _forward(spec: Mapping[str, Any]) -> int:
    x, w, y = _blocked(spec)
    if spec["channels_last"]:
        return w if _depthwise(spec) else 2 * w
    plain = math.prod(spec["y"]) * spec["item"]
    if spec["transposed"]:
        return max(x + w + y - plain, 2 * plain)
    return max(x + w + y - plain, y)


def _backward(spec: Mapping[str, Any], threads: int) -> int:
    x, w, y = _blocked(spec)
    wants_x, wants_w, *_ = spec["wants"]
    plain_x = math.prod(spec["x"]) * spec["item"] if wants_x else 0
    plain_w = math.prod(spec["w"]) * spec["item"] if wants_w else 0
    if spec["channels_last"]:
        return w + 4 * x if _depthwise(spec) else 3 * w
    if _spread(spec) and not spec["transposed"]:
        return max(w, min(threads, spec["x"][0]) * (_im2col(spec) + _partial_sums(spec, w)))
    for_x = max(y + w + x - plain_x - plain_w, x - plain_w) if wants_x else 0
    for_w = max(y + x + w - plain_w, w) if wants_w else 0
    if _depthwise(spec):
        for_w = w
    return max(for_x, for_w, 0)


def _partial_sums(spec: Mapping[str, Any], weight: int) -> int:
    """Where the output is small, each thread adds up the weight gradient in four parts."""
    return 4 * weight if math.prod(spec["y"][2:]) < _SMALL_OUTPUT else 0


def _reduction(spec: Mapping[str, Any], threads: int) -> int:
    """Threads that share a weight gradient may each hold a part of it, and of a strided input."""
    return threads * math.prod(spec["w"]) * spec["item"]  # type: ignore[no-any-return]


def _blocked(spec: Mapping[str, Any]) -> tuple[int, int, int]:
    """Bytes of x, w and y with channels padded to whole blocks; an input of a few channels stays as it is."""

    def padded(shape: list[int]) -> int:
        return shape[0] * _up(shape[1]) * math.prod(shape[2:]) * _FLOAT

    shape = spec["w"]
    weight = _up(shape[0]) * (_up(shape[1]) if shape[1] > 1 else 1) * math.prod(shape[2:]) * _FLOAT
    x = padded(spec["x"]) if spec["x"][1] >= _BLOCK else 0
    return x, weight, padded(spec["y"])


def _depthwise(spec: Mapping[str, Any]) -> bool:
    return bool(spec["groups"] == spec["x"][1] > 1)


def _spread(spec: Mapping[str, Any]) -> bool:
    return max(spec["dilation"]) > 1 and max(spec["w"][2:]) > 1


def _im2col(spec: Mapping[str, Any]) -> int:
    return spec["x"][1] // spec["groups"] * math.prod(spec["w"][2:]) * math.prod(spec["y"][2:]) * _FLOAT  # type: ignore[no-any-return]


def _up(channels: int) -> int:
    return -(-channels // _BLOCK) * _BLOCK
