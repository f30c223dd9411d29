"""The CUDA caching allocator as it is by default: blocks cut out of segments that cudaMalloc gave.

Follows c10/cuda/CUDACachingAllocator.cpp (read at 2.6, constants compared with the headers of 2.14).
"""

from __future__ import annotations

from bisect import bisect_left

from oomproof.memory.allocators.free_blocks import ADDRESS, ADDRESS_BITS, FreeBlocks

MIB = 1 << 20
GRANULE = 512
SMALL_SIZE = MIB
"""the largest request that goes to the small pool"""
SMALL_BUFFER = 2 * MIB
LARGE_BUFFER = 20 * MIB
MIN_LARGE_ALLOC = 10 * MIB
ROUND_LARGE = 2 * MIB
UNLIMITED = 1 << 62


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def segment_size(size: int) -> int:
    """Bytes that cudaMalloc is asked for when a request of ``size`` bytes finds no free block."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    return LARGE_BUFFER if size < MIN_LARGE_ALLOC else round_up(size, ROUND_LARGE)


class Segments:
    """The default: every growth is one cudaMalloc, and a segment goes back only when all of it is free."""

    def __init__(self, capacity: int | None, max_split: int) -> None:
        self.capacity = UNLIMITED if capacity is None else capacity
        self.max_split = max_split
        self.small = FreeBlocks()
        self.large = FreeBlocks()
        self.reserved = 0
        self.peak = 0
        self.retries = 0
        """requests for which something cached was given back to the device"""
        self._sizes: dict[int, int] = {}
        self._frontier = 0

    def serve(self, size: int) -> tuple[int, int] | None:
        """(address, bytes) of the block handed out for ``size`` bytes; None where the device has no more room."""
        pool = self.small if size <= SMALL_SIZE else self.large
        block = self._best_fit(pool, size) or self._grow(pool, size)
        if block is None:
            return None
        address, have = block
        if self._splits(have, size):
            pool.put(address + size, have - size)
            return address, size
        return block

    def free(self, address: int, size: int, requested: int) -> None:
        (self.small if requested <= SMALL_SIZE else self.large).give_back(address, size)

    def _best_fit(self, pool: FreeBlocks, size: int) -> tuple[int, int] | None:
        order = pool.order
        at = bisect_left(order, size << ADDRESS_BITS)
        if at == len(order):
            return None
        key = order[self._prefer_block(pool, at)]
        have = key >> ADDRESS_BITS
        # Oversize blocks serve no smaller request, and a larger one only where little is lost.
        if have >= self.max_split and (size < self.max_split or have >= size + LARGE_BUFFER):
            return None
        address = key & ADDRESS
        pool.take(address)
        return address, have

    def _prefer_block(self, pool: FreeBlocks, at: int) -> int:
        return at

    def _splits(self, have: int, size: int) -> bool:
        if size <= SMALL_SIZE:
            return have - size >= GRANULE
        return have - size > SMALL_SIZE and size < self.max_split

    def _grow(self, pool: FreeBlocks, size: int) -> tuple[int, int] | None:
        segment = segment_size(size)
        room = self.capacity - segment
        if self.reserved > room:
            before = self.reserved
            if not (self._release_enough(pool, size) and self.reserved <= room):
                self._release_all()
            self.retries += self.reserved < before
            if self.reserved > room:
                return None
        address = self._frontier
        self._frontier += segment + GRANULE  # a gap, so that blocks of two segments are never neighbours
        self._sizes[address] = segment
        self._add(segment)
        return address, segment

    def _add(self, size: int) -> None:
        self.reserved += size
        self.peak = max(self.peak, self.reserved)

    def _release_enough(self, pool: FreeBlocks, size: int) -> bool:
        """Under max_split_size_mb: the best-fitting oversize segment goes back, or the largest till they suffice."""
        if self.max_split >= UNLIMITED:
            return False
        order, wanted = pool.order, max(size, self.max_split)
        at = bisect_left(order, wanted << ADDRESS_BITS)
        if at < len(order):
            self._release(pool, order[at] & ADDRESS)
            return True
        released = 0
        while order and released < wanted and order[-1] >> ADDRESS_BITS >= self.max_split:
            released += self._release(pool, order[-1] & ADDRESS)
        return released >= wanted

    def _release_all(self) -> None:
        for pool in (self.large, self.small):
            for address, size in list(pool.starts.items()):
                if self._sizes.get(address) == size:
                    self._release(pool, address)

    def _release(self, pool: FreeBlocks, address: int) -> int:
        size = pool.take(address)
        del self._sizes[address]
        self.reserved -= size
        return size
