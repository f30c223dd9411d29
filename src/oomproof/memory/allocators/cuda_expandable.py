"""The CUDA caching allocator with expandable_segments:True: one address range a pool, backed page by page.

Follows try_allocate_expandable_block, map_block and unmap_block of c10/cuda/CUDACachingAllocator.cpp. The real range is
1.125 times the device's memory, and a second one begins where it is full; here it has no end.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from oomproof.memory.allocators.cuda_segments import GRANULE, LARGE_BUFFER, SMALL_BUFFER, Segments, round_up
from oomproof.memory.allocators.free_blocks import ADDRESS, ADDRESS_BITS, FreeBlocks

RANGE = (1 << 61) // LARGE_BUFFER * LARGE_BUFFER


class PagedBlocks(FreeBlocks):
    """Free blocks in a range of addresses of which only some pages are backed by memory."""

    __slots__ = ("gaps", "page", "unbacked")

    def __init__(self, base: int, page: int) -> None:
        super().__init__()
        self.page = page
        self.gaps = {base: RANGE}
        """address -> bytes of each stretch without memory"""
        self.unbacked = [base]
        """the addresses in ``gaps``, in order"""

    def lowest_stretch(self, size: int) -> int:
        """The lowest address from which ``size`` bytes are free or unbacked, with something unbacked among them."""
        for gap in self.unbacked:
            start = end = self.ends.get(gap, gap)
            while end - start < size:
                length = self.gaps.get(end) or self.starts.get(end)
                if length is None:
                    break
                end += length
            else:
                return start
        raise AssertionError(f"the address range of {RANGE} bytes is full")

    def back(self, gap: int, size: int) -> tuple[int, int]:
        """Gives memory to the first ``size`` bytes of a gap; tells the free block they are part of now."""
        length, at = self.gaps.pop(gap), bisect_left(self.unbacked, gap)
        if size < length:
            self.unbacked[at] = gap + size
            self.gaps[gap + size] = length - size
        else:
            del self.unbacked[at]
        return self.give_back(gap, size)

    def unback(self) -> int:
        """Takes the memory from all pages that are wholly free; tells how many bytes that is."""
        taken = 0
        for address, size in list(self.starts.items()):
            end = address + size
            first, last = round_up(address, self.page), end // self.page * self.page
            if first >= last:
                continue
            self.take(address)
            if address < first:
                self.put(address, first - address)
            if last < end:
                self.put(last, end - last)
            self._open(first, last - first)
            taken += last - first
        return taken

    def _open(self, start: int, size: int) -> None:
        after = self.gaps.pop(start + size, 0)
        if after:
            self.unbacked.remove(start + size)
        at = bisect_left(self.unbacked, start) - 1
        if at >= 0 and self.unbacked[at] + self.gaps[self.unbacked[at]] == start:
            self.gaps[self.unbacked[at]] += size + after
        else:
            insort(self.unbacked, start)
            self.gaps[start] = size + after


class ExpandableSegments(Segments):
    """The rules that differ: where a free block is cut, how the pool grows, what can be given back."""

    def __init__(self, capacity: int | None, max_split: int) -> None:
        super().__init__(capacity, max_split)
        self.small: PagedBlocks = PagedBlocks(0, SMALL_BUFFER)
        self.large: PagedBlocks = PagedBlocks(2 * RANGE, LARGE_BUFFER)

    def _prefer_block(self, pool: FreeBlocks, at: int) -> int:
        """A free block that can still grow counts as large as it can become, so that it is cut last."""
        gaps, order = self._find_pages(pool).gaps, pool.order

        def room(key: int) -> int:
            size = key >> ADDRESS_BITS
            return size + gaps.get((key & ADDRESS) + size, 0)

        best = room(order[at])
        while at + 1 < len(order) and (other := room(order[at + 1])) < best:
            at, best = at + 1, other
        return at

    def _splits(self, have: int, size: int) -> bool:
        return have - size >= GRANULE

    def _grow(self, pool: FreeBlocks, size: int) -> tuple[int, int] | None:
        paged = self._find_pages(pool)
        block = self._map(paged, size)
        if block is None:
            given = self.large.unback() + self.small.unback()
            self.reserved -= given
            self.retries += given > 0
            block = self._map(paged, size)
        return block

    def _map(self, pool: PagedBlocks, size: int) -> tuple[int, int] | None:
        address = pool.lowest_stretch(size)
        have = pool.starts.get(address, 0)
        while have < size:
            gap = address + have
            wanted = min(round_up(size - have, pool.page), pool.gaps[gap])
            if self.reserved + wanted > self.capacity:
                # What was backed before this piece stays, free, as in the real allocator.
                return None
            self._add(wanted)
            address, have = pool.back(gap, wanted)
        pool.take(address)
        return address, have

    def _find_pages(self, pool: FreeBlocks) -> PagedBlocks:
        return self.small if pool is self.small else self.large
