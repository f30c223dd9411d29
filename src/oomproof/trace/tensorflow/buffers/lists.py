"""Lists of tensors (TensorArray, what loops keep for their gradients): what is known of their elements.

A list is one tensor to the graph, whose elements' shapes are often not in it. They are those of what was put in,
perhaps in another loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

Shape = tuple[int, ...]
MAKERS = frozenset({"TensorListReserve", "EmptyTensorList"})
WRITES = {"TensorListPushBack": 1, "TensorListSetItem": 2}
"""which input is put into the list"""
READS = {"TensorListGetItem": 0, "TensorListPopBack": 1}
"""which result comes out of it"""


@dataclass(frozen=True)
class Elements:
    room: int | None = None
    """how many there can be"""
    shape: Shape | None = None
    value: Any = None
    """what each of them is, where that is a shape that is always the same"""
    by_data: bool = False
    """whether the data decide on their size"""

    def __or__(self, other: Elements | None) -> Elements:
        """What the other knows comes first."""
        if other is None:
            return self
        known = other.shape if other.shape is not None else self.shape
        room = other.room if other.room is not None else self.room
        value = other.value if other.value is not None else self.value
        return Elements(room, known, value, self.by_data or other.by_data)


def with_item(elements: Elements | None, shape: Shape | None, value: Any, by_data: bool = False) -> Elements:
    """After one more was put in; elements count as large as the largest."""
    before = elements or Elements()
    if shape is None or (before.shape is not None and math.prod(before.shape) > math.prod(shape)):
        return before
    return replace(before, shape=shape, value=value, by_data=before.by_data or by_data)


def make_list(op: str, shapes: Sequence[Shape | None], count: Any, by_data: bool = False) -> Elements | None:
    """A new list; None for any other operation. ``count`` is the value of the second input."""
    if op in MAKERS:
        return Elements(int(count) if count is not None and int(count) >= 0 else None)
    if op == "TensorListFromTensor" and shapes[0]:
        return Elements(shapes[0][0], shapes[0][1:], by_data=by_data)
    return None
