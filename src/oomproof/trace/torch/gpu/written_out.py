"""Operations that PyTorch writes in tensors inside one kernel, on every device: losses before they are reduced, the
products of a bilinear layer. And results that keep the memory they were reduced in.

Seen on the CPU with torch 2.14, and read in the same code (Loss.cpp, Linear.cpp, ReduceOps.cpp, Distributions.cpp) and
in CUDA's (Loss.cu, Col2Im.cu, Unique.cu).
"""

from __future__ import annotations

import math
from typing import Any

import torch

_REDUCTION = {
    "mse_loss": 2,
    "smooth_l1_loss": 2,
    "huber_loss": 2,
    "soft_margin_loss": 2,
    "binary_cross_entropy": 3,
    "binary_cross_entropy_with_logits": 4,
}
"""where a loss says how it is reduced; 0: not at all"""
_MORE = {"binary_cross_entropy_with_logits": (1, 2)}
"""tensors with all elements that are made beside the result, if it has them all as well and if it is reduced"""
_REDUCED = dict.fromkeys(("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_"), 4)
"""where an operation says whether it takes means"""
_KEEP = frozenset({"mse_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy"})
KEEP_MORE = _KEEP | {"col2im"}
"""whose results hold more memory than their shape says"""


def written_out(name: str, args: Any) -> dict[str, Any] | None:
    """What is written out beside the result."""
    x = args[0]
    if name in _REDUCTION:
        numbers = _elements(args) * _MORE.get(name, (0, 1))[_is_reduced(name, args)]
    elif name == "soft_margin_loss_backward":  # (gradient, input, ...)
        numbers = 2 * args[1].numel()
    elif name == "_trilinear":
        sides = _spread(args)
        numbers = math.prod(sides) // max(1, sides[args[7] if len(args) > 7 else 1])
    elif name == "roll":  # one dimension after the other; what is not dense is copied for the first
        numbers = x.numel() * max(len(args[2]) - 1 if len(args) > 2 else 0, not x.is_contiguous())
    elif name == "_euclidean_dist":  # both beside their squares and ones, to be multiplied as matrices
        numbers = sum(each.numel() // max(1, each.shape[-1]) * (each.shape[-1] + 2) for each in args[:2])
    elif name in _REDUCED:
        numbers = _count_for_means(name, args)
    elif name == "_safe_softmax":  # a byte for each number says whether it is -inf (attention.cpp)
        numbers = -(-x.numel() // x.element_size())
    else:
        numbers = x.numel()
    return {"op": name, "elements": numbers, "item": x.element_size()} if numbers else None


def _count_for_means(name: str, args: Any) -> int:
    """How many numbers came to each place is counted, in numbers of the same type; a byte says where none did."""
    place, (kept, _, _, given) = _REDUCED[name], args[:4]
    means = len(args) > place and args[place] == "mean"
    return kept.numel() + given.numel() + -(-kept.numel() // kept.element_size()) if means else 0


def held_bytes(name: str, args: Any, out: torch.Tensor) -> int:
    """Bytes of a result's memory."""
    if name == "col2im":
        return int(max(args[0].numel(), out.numel()) * out.element_size())
    return int((_elements(args) if _is_reduced(name, args) else out.numel()) * out.element_size())


def _is_reduced(name: str, args: Any) -> bool:
    place = _REDUCTION[name]
    return bool(args[place]) if len(args) > place else True


def _elements(args: Any) -> int:
    return math.prod(torch.broadcast_shapes(args[0].shape, args[1].shape))


def _spread(args: Any) -> torch.Size:
    """The shape of all products of a bilinear layer, each factor spread along what it does not have."""
    shapes = []
    for factor, missing in zip(args[:3], args[3:6], strict=True):
        shape = list(factor.shape)
        for place in sorted(missing):
            shape.insert(place, 1)
        shapes.append(shape)
    return torch.broadcast_shapes(*shapes)
