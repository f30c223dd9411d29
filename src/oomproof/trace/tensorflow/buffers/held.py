"""Memory that a step holds: a buffer, or a list of tensors that keeps others alive.

A loop is gone through twice, whatever the number of its turns. What it puts into a list in the other turns is one more
buffer: loops run up to ten turns ahead (TensorFlow 2.21), so the elements of all turns are alive at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

TRIPS = 2
"""times a loop's body is gone through: from the second on, old and new loop variables meet"""
MAKERS = frozenset({"TensorListReserve", "EmptyTensorList"})
COPIES = frozenset({"TensorListFromTensor", "ZerosLike"})
"""make a list whose elements are new, as large as what goes in"""
READS = frozenset({"TensorListGetItem", "TensorListPopBack", "TensorListLength", "TensorListElementShape"})
WRITES = {"TensorListPushBack": 1, "TensorListSetItem": 2}
"""the input that is put into the list"""
ADDS = frozenset({"AddN"})
"""lists are added element by element; elements of all of them may be alive at once"""


@dataclass(eq=False, slots=True)
class HeldMemory:
    """One buffer; or a list, which has none of its own."""

    block: int
    bytes: int
    references: int = 0
    room: int = 1
    """elements of a list, where known"""
    parts: list[HeldMemory] = field(default_factory=list)
    is_full: bool = False
    """whether the elements of turns that are not gone through are among the parts"""

    def elements(self) -> int:
        """Bytes of a list's elements."""
        return sum(part.bytes + part.elements() for part in self.parts)


def copy_list(memory: HeldMemory | None) -> HeldMemory | None:
    """A list of its own with the same elements. Lists are values: where several are begun with one empty list, as
    TensorFlow's optimizer makes of empty lists that are alike, each goes on by itself."""
    if memory is None or memory.block >= 0:
        return memory
    for part in memory.parts:
        part.references += 1
    return HeldMemory(-1, 0, room=memory.room, parts=list(memory.parts), is_full=memory.is_full)


def put_into(memory: HeldMemory, item: HeldMemory, allocate: Callable[[int], int]) -> None:
    """A list keeps what is put into it; in a loop, as many as it has room for. ``allocate`` makes a block."""
    item.references += 1
    memory.parts.append(item)
    nbytes = item.bytes * (memory.room - TRIPS)
    if nbytes > 0 and not memory.is_full:
        memory.parts.append(HeldMemory(allocate(nbytes), nbytes, references=1))
        memory.is_full = True


def add_to(memory: HeldMemory, other: HeldMemory, allocate: Callable[[int], int]) -> None:
    """The elements of both stay; one of them may have an element for each turn of a loop, as the sum then has."""
    small, large = sorted((memory, other), key=lambda each: each.room)
    more = max((part.bytes for part in small.parts), default=0) * (large.room - TRIPS)
    is_new = small.room < large.room and not other.is_full
    other.references += 1
    memory.parts.append(other)
    memory.room, memory.is_full = large.room, True
    if more > 0 and is_new:
        memory.parts.append(HeldMemory(allocate(more), more, references=1))
