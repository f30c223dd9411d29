"""Which operations may take scratch memory that no tensor shows, and what is needed to price it.

The tracer only notes the call; memory/overheads.py says what it costs on a device.
"""

from __future__ import annotations

from typing import Any

import torch

from oomproof.memory.scratch.recurrent import BACKWARD, FORWARD
from oomproof.trace.torch.gpu.recurrent_scratch import recurrent_backward, recurrent_forward

_CTC, _BAGS = "_ctc_loss_backward", "_embedding_bag_backward"
_SORTS = frozenset({"sort", "topk", "unique_dim", "_unique2", "unique_consecutive", "argsort", "msort", "kthvalue"})
_SCANS = frozenset({"nonzero", "cumsum", "masked_select", "logcumsumexp"})
_SCATTERS = frozenset({"index_put", "index_put_", "_index_put_impl_", "embedding_dense_backward"}) | {_BAGS}
TAKE_SCRATCH = (
    frozenset({"convolution", "convolution_backward", "nms", FORWARD, BACKWARD, _CTC}) | _SORTS | _SCANS | _SCATTERS
)


def call_spec(name: str, args: Any, outs: list[torch.Tensor]) -> dict[str, Any] | None:
    """What to note of an operation, or None where its kernel needs nothing beyond its tensors."""
    if name == "convolution":
        return _convolution(name, args[0], args[1], outs[0], args[3:9])
    if name == "convolution_backward":
        return _convolution(name, args[1], args[2], args[0], args[4:10]) | {"wants": list(args[10])}
    if name in (FORWARD, BACKWARD):
        return recurrent_forward(args) if name == FORWARD else recurrent_backward(args)
    if name in _SORTS or name in _SCANS or name == _CTC:
        # CTC's second table of paths is as large as its first, which it is given (log_beta in LossCTC.cu)
        given = args[6] if name == _CTC else args[0]
        return {"op": name, "elements": given.numel(), "item": given.element_size()}
    if name == "nms":
        return {"op": name, "elements": args[0].shape[0]}
    return _scatter(name, args) if name in _SCATTERS else None


def _scatter(name: str, args: Any) -> dict[str, Any] | None:
    if name == _BAGS:  # sorted by CUDA as the indices of a plain table are; the largest of a bag needs no sorting
        largest = 2
        plain = {"op": "embedding_dense_backward", "elements": args[1].numel(), "item": 8}
        return None if args[8] == largest else plain
    accumulate = name == "embedding_dense_backward" or (len(args) > 3 and bool(args[3]))
    indices = args[1] if name == "embedding_dense_backward" else next(i for i in args[1] if i is not None)
    return {"op": name, "elements": indices.numel(), "item": 8} if accumulate else None


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
        "channels_last": x.dim() == 4 and x.stride(1) == 1 and x.shape[1] > 1,
    }
