"""TensorFlow's BFC allocator ("best fit with coalescing"): chunks cut out of regions that the device gave.

Follows tsl/framework/bfc_allocator.cc. Its bins are ranges of sizes, and each is ordered by size and address, so
looking through them upwards is best fit among all free chunks.
"""

from __future__ import annotations

from bisect import bisect_left

from oomproof.memory.allocators.free_blocks import ADDRESS, ADDRESS_BITS, FreeBlocks

MIB = 1 << 20
GRANULE = 256
FIRST_REGION = 2 * MIB
"""the first region with memory growth; each further one is twice as large"""
MOST_WASTED = 128 * MIB
"""a chunk that is this much larger than asked for is split; else only one of twice the size"""
UNLIMITED = 1 << 62


class Regions:
    """With ``growth``, regions come as they are needed; without, one region of all that there is comes first."""

    def __init__(self, capacity: int | None, growth: bool) -> None:
        self.capacity = (UNLIMITED if capacity is None else capacity) // GRANULE * GRANULE
        self.next_region = min(FIRST_REGION, self.capacity) if growth else self.capacity
        self.reserved = 0
        self.peak = 0
        self.retries = 0
        """requests for which regions that were wholly free went back to the device"""
        self.free_chunks = FreeBlocks()
        self._sizes: dict[int, int] = {}
        """address -> bytes of each region"""
        self._frontier = 0

    @property
    def regions(self) -> tuple[int, ...]:
        """Sizes of the regions, in the order in which they came."""
        return tuple(self._sizes.values())

    def serve(self, size: int) -> tuple[int, int] | None:
        chunk = self._best_fit(size)
        if chunk is None and self._extend(size):
            chunk = self._best_fit(size)
        if chunk is None and self._give_back(size) and self._extend(size):
            self.retries += 1
            chunk = self._best_fit(size)
        return chunk

    def free(self, address: int, size: int, requested: int) -> None:
        self.free_chunks.give_back(address, size)

    def _best_fit(self, size: int) -> tuple[int, int] | None:
        order = self.free_chunks.order
        at = bisect_left(order, size << ADDRESS_BITS)
        if at == len(order):
            return None
        address = order[at] & ADDRESS
        have = self.free_chunks.take(address)
        if have >= 2 * size or have - size >= MOST_WASTED:
            self.free_chunks.put(address + size, have - size)
            return address, size
        return address, have

    def _extend(self, size: int) -> bool:
        """One more region, twice as large as the last, or as much larger as it must be."""
        available = (self.capacity - self.reserved) // GRANULE * GRANULE
        if size > available:
            return False
        grown = False
        while size > self.next_region:
            self.next_region *= 2
            grown = True
        region = min(self.next_region, available)
        if not grown:
            self.next_region *= 2
        address = self._frontier
        self._frontier += region + GRANULE  # a gap, so that chunks of two regions are never neighbours
        self._sizes[address] = region
        self.free_chunks.put(address, region)
        self.reserved += region
        self.peak = max(self.peak, self.reserved)
        return True

    def _give_back(self, size: int) -> bool:
        """Regions without a chunk in use go back, if what is then there could be enough."""
        starts = self.free_chunks.starts
        idle = [address for address, region in self._sizes.items() if starts.get(address) == region]
        together = sum(self._sizes[address] for address in idle)
        if not idle or size > self.capacity - self.reserved + together:
            return False
        for address in idle:
            self.free_chunks.take(address)
            self.reserved -= self._sizes.pop(address)
        return True
