"""Which operations may take scratch memory that no tensor shows, and what is needed to price it.

The tracer only notes the call; memory/overheads.py says what it costs on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oomproof.memory.scratch.calls import (
    DEFORMED,
    EFFICIENT_BACKWARD,
    EFFICIENT_FORWARD,
    FACTORISED,
    FLASH_BACKWARD,
    FOURIER,
    GATHERED,
    LAID_OUT,
    MATRIX_EXPONENTIAL,
    PRODUCTS,
    WRITTEN_OUT,
)
from oomproof.memory.scratch.recurrent import BACKWARD, FORWARD
from oomproof.trace.torch.gpu.attention_scratch import efficient_backward, efficient_forward, flash_backward
from oomproof.trace.torch.gpu.laid_out import copied_bytes, is_channels_last, laid_out
from oomproof.trace.torch.gpu.recurrent_scratch import recurrent_backward, recurrent_forward
from oomproof.trace.torch.gpu.sorted_scratch import sorted_places, sorted_rows
from oomproof.trace.torch.gpu.written_out import written_out

_CTC = "_ctc_loss_backward"
_SORTS = frozenset({"sort", "topk", "unique_dim", "_unique2", "unique_consecutive", "argsort", "msort", "kthvalue"})
_SCANS = frozenset({"nonzero", "cumsum", "logcumsumexp"})
_BY_NAME: dict[str, Callable[[str, Any], dict[str, Any] | None]] = {
    **dict.fromkeys(("embedding_dense_backward", "_embedding_bag_backward"), sorted_rows),
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_"), sorted_places),
    **dict.fromkeys(WRITTEN_OUT, written_out),
    **dict.fromkeys(LAID_OUT, laid_out),
}
_OF_ALL_ARGUMENTS = {
    FORWARD: recurrent_forward,
    BACKWARD: recurrent_backward,
    FLASH_BACKWARD: flash_backward,
    EFFICIENT_FORWARD: efficient_forward,
    EFFICIENT_BACKWARD: efficient_backward,
}
_BY_ELEMENTS = _SORTS | _SCANS | FACTORISED | {_CTC, MATRIX_EXPONENTIAL}
TAKE_SCRATCH = (
    frozenset({"convolution", "convolution_backward", "nms", *_OF_ALL_ARGUMENTS})
    | _BY_ELEMENTS
    | _BY_NAME.keys()
    | GATHERED
    | DEFORMED
    | FOURIER
    | PRODUCTS
)
_DEFORMED_AT_ONCE = 32
"""images whose columns torchvision lays out at once (kMaxParallelImgs in deform_conv2d_kernel.cu and .cpp, 0.29)"""


def call_spec(name: str, args: Any, outs: list[torch.Tensor]) -> dict[str, Any] | None:
    """What to note of an operation, or None where its kernel needs nothing beyond its tensors."""
    if name.startswith("convolution"):
        return _forward_convolution(args, outs) if name == "convolution" else _backward_convolution(args)
    if name in _OF_ALL_ARGUMENTS:
        return _OF_ALL_ARGUMENTS[name](args)
    if name in _BY_NAME:
        return _BY_NAME[name](name, args)
    if name in DEFORMED or name in GATHERED:
        return (_note_columns if name in DEFORMED else _note_gathered)(name, args, outs)
    return _by_elements(name, args, outs) if name in TAKE_SCRATCH else None


def _by_elements(name: str, args: Any, outs: list[torch.Tensor]) -> dict[str, Any] | None:
    if name == "nms":
        return {"op": name, "elements": args[0].shape[0]}
    if name in PRODUCTS:
        copied = _unfit_numbers(args)
        return {"op": name, "elements": copied, "item": outs[0].element_size()} if copied else None
    # CTC's second table of paths is as large as its first, which it is given (log_beta in LossCTC.cu)
    given = args[6] if name == _CTC else args[0]
    if name in FOURIER:  # everything is done on complex numbers, of which a real side has half as many
        given = max((given, *outs), key=lambda each: each.numel() * each.element_size())
    return {"op": name, "elements": given.numel(), "item": given.element_size()}


def _forward_convolution(args: Any, outs: list[torch.Tensor]) -> dict[str, Any]:
    return _convolution("convolution", args[0], args[1], outs[0], args[3:9]) | {
        "copied": copied_bytes(args[:1], args[:2])
    }


def _backward_convolution(args: Any) -> dict[str, Any]:
    more = {"wants": list(args[10]), "copied": copied_bytes(args[:2], args[1:3])}
    return _convolution("convolution_backward", args[1], args[2], args[0], args[4:10]) | more


def _unfit_numbers(args: Any) -> int:
    """Numbers of the matrices that no library for matrices reads as they are, so that PyTorch writes them out: neither
    rows nor columns lie dense, or they overlap. The gradient of a plain ``sum()``, which is expanded, is one."""
    return sum(each.numel() for each in args if isinstance(each, torch.Tensor) and each.dim() > 1 and _is_unfit(each))


def _is_unfit(matrix: torch.Tensor) -> bool:
    (rows, columns), (down, across) = matrix.shape[-2:], matrix.stride()[-2:]
    by_rows, by_columns = across == 1 and down >= columns, down == 1 and across >= rows
    return min(rows, columns) > 1 and not by_rows and not by_columns


def _note_columns(name: str, args: Any, outs: list[torch.Tensor]) -> dict[str, Any]:
    """The columns of as many images as divide the batch, a second result that is laid out by them, and copies of what
    is not contiguous."""
    y, (x, weight) = (args[0], args[1:3]) if "backward" in name else (outs[0], args[:2])
    at_once = max(count for count in range(1, _DEFORMED_AT_ONCE + 1) if x.shape[0] % count == 0)
    columns = x.shape[1] * weight.shape[2] * weight.shape[3] * at_once * y.shape[2] * y.shape[3]
    copies = sum(each.numel() for each in args if isinstance(each, torch.Tensor) and not each.is_contiguous())
    return {"op": name, "elements": columns + y.numel() + copies, "item": y.element_size()}


def _note_gathered(name: str, args: Any, outs: list[torch.Tensor]) -> dict[str, Any]:
    """Differences of every pair (DistanceKernel.cu), or 8 bytes of places: where the chosen are (Indexing.cu), or how
    many were chosen before each (IndexKernel.cpp)."""
    if name == "_cdist_backward":  # (gradient, x1, x2, p, distances)
        return {"op": name, "elements": args[4].numel() * args[1].shape[-1], "item": args[1].element_size()}
    if name == "_pdist_backward":  # (gradient, x, p, distances)
        count = args[1].shape[0]
        return {"op": name, "elements": max(0, count - 1) * args[1].numel(), "item": args[1].element_size()}
    if name == "masked_select":
        return {"op": name, "elements": outs[0].numel() * max(args[0].dim(), args[1].dim(), 1), "item": 8}
    mask = args[0].numel() if args[1].numel() < args[0].numel() or not args[1].is_contiguous() else 0
    return {"op": name, "elements": args[0].numel(), "item": 8, "copied": mask}


def _convolution(name: str, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, how: Any) -> dict[str, Any]:
    stride, padding, dilation, transposed, _, groups = how
    return {
        "op": name,
        "x": list(x.shape),
        "w": list(weight.shape),
        "y": list(y.shape),
        "stride": list(stride),
        "padding": list(padding),
        "dilation": list(dilation),
        "transposed": bool(transposed),
        "groups": int(groups),
        "dtype": str(x.dtype).removeprefix("torch."),
        "item": x.element_size(),
        "channels_last": x.dim() == 4 and (is_channels_last(x) or is_channels_last(weight)),
    }
