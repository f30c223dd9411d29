"""The free blocks of one pool: found by best fit, merged with their free neighbours."""

from __future__ import annotations

from bisect import bisect_left, insort

ADDRESS_BITS = 64
ADDRESS = (1 << ADDRESS_BITS) - 1


class FreeBlocks:
    """Free blocks ordered by size, then address, as PyTorch's comparator has them.

    ``order`` holds one integer a block, size above address: comparing those is several times faster than
    comparing tuples. ``starts`` (address -> size) and ``ends`` (end -> address) find neighbours. Addresses of
    separate segments must not touch, or their blocks would merge.
    """

    __slots__ = ("ends", "order", "starts")

    def __init__(self) -> None:
        self.order: list[int] = []
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def put(self, address: int, size: int) -> None:
        """Adds a block; the caller has merged it already."""
        insort(self.order, size << ADDRESS_BITS | address)
        self.starts[address] = size
        self.ends[address + size] = address

    def take(self, address: int) -> int:
        """Removes the block at ``address`` and tells its size."""
        size = self.starts.pop(address)
        del self.ends[address + size]
        del self.order[bisect_left(self.order, size << ADDRESS_BITS | address)]
        return size

    def give_back(self, address: int, size: int) -> tuple[int, int]:
        """Adds a block merged with its free neighbours; tells where the whole begins and how large it is."""
        before = self.ends.get(address)
        if before is not None:
            size += self.take(before)
            address = before
        if address + size in self.starts:
            size += self.take(address + size)
        self.put(address, size)
        return address, size
