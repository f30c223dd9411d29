"""Gradients of tables and of indexing as a GPU makes them: indices are sorted, so that rows of one place meet.

Read in EmbeddingBackwardKernel.cu and Indexing.cu of PyTorch 2.14.
"""

from __future__ import annotations

import math
from typing import Any

import torch

_BAGS = "_embedding_bag_backward"
_LARGEST_OF_BAGS = 2
_FEW = 3072
"""indices that a plain table's gradient is made of without sorting"""
_INDEX, _FLOAT = 8, 4
_SORTING = 6 * _INDEX
"""of each index, while they are sorted: places, a count, both sorted, and a second buffer; as much stays in tables of
segments"""


def sorted_rows(name: str, args: Any) -> dict[str, Any] | None:
    """A table's gradient: every index has a row in fp32 before rows are added."""
    gradient, indices = args[:2]
    bags = name == _BAGS
    weighted = bool(args[7] if bags else args[4])
    if (args[8] == _LARGEST_OF_BAGS) if bags else (indices.numel() <= _FEW and not weighted):
        return None
    each = _SORTING + _INDEX * weighted + gradient.shape[-1] * max(_FLOAT, gradient.element_size())
    return {
        "op": "embedding_dense_backward",
        "elements": indices.numel(),
        "item": each,
        "copied": 0 if gradient.is_contiguous() else gradient.numel() * gradient.element_size(),
    }


def sorted_places(name: str, args: Any) -> dict[str, Any] | None:
    """``x[indices] += values``, which is also the gradient of ``x[indices]``."""
    table, indices, values = args[:3]
    if len(args) < 4 or not args[3]:
        return None
    masks = sum(each.dim() for each in indices if each is not None and not _is_numbers(each))
    rest = _numbers_of_a_place(table, indices)
    places = _count_places(table, indices, values, rest) if masks else _count_pairs(indices)
    spread = values.numel() < places * rest or not values.is_contiguous()
    torn = not table.is_contiguous() or _apart(indices)
    return {
        "op": name,
        "elements": places,
        "item": _SORTING + masks * _INDEX,
        "copied": (places * rest * spread + table.numel() * torn) * table.element_size(),
    }


def _is_numbers(index: torch.Tensor) -> bool:
    return index.dtype not in (torch.bool, torch.uint8)


def _numbers_of_a_place(table: torch.Tensor, indices: Any) -> int:
    sides: list[int] = []
    at = 0
    for index in indices:
        dims = 1 if index is None or _is_numbers(index) else index.dim()
        sides += table.shape[at : at + dims] if index is None else ()
        at += dims
    return math.prod([*sides, *table.shape[at:]])


def _count_places(table: torch.Tensor, indices: Any, values: torch.Tensor, rest: int) -> int:
    """How many places a mask has only values would tell; as many as there are values for, or all."""
    most: int = max(1, table.numel() // max(1, rest))
    return min(most, int(values.numel() // max(1, rest))) if values.dim() and values.numel() > rest else most


def _count_pairs(indices: Any) -> int:
    return math.prod(torch.broadcast_shapes(*(each.shape for each in indices if each is not None)))


def _apart(indices: Any) -> bool:
    """Whether dimensions that are not indexed lie between those that are."""
    given = [place for place, each in enumerate(indices) if each is not None]
    return bool(given) and given[-1] - given[0] >= len(given)
