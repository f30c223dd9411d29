"""A second, slow model of TensorFlow's BFC allocator, to compare the fast one with.

Written from the rules alone: regions are lists of chunks in the order of their addresses, bins are looked through one
by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BINS = 21


@dataclass(eq=False)
class Chunk:
    size: int
    used: bool = False


def bin_of(size: int) -> int:
    return min(BINS - 1, (size // 256).bit_length() - 1)


@dataclass
class NaiveBfc:
    limit: int
    growth: bool
    regions: list[list[Chunk]] = field(default_factory=list)
    next_region: int = 0
    in_use: int = 0
    peak_pool: int = 0

    def __post_init__(self) -> None:
        self.limit = self.limit // 256 * 256
        self.next_region = min(2 << 20, self.limit) if self.growth else self.limit

    def pool(self) -> int:
        return sum(chunk.size for region in self.regions for chunk in region)

    def serve(self, request: int) -> Chunk | None:
        size = -(-request // 256) * 256
        chunk = self.find(size)
        if chunk is None and self.extend(size):
            chunk = self.find(size)
        if chunk is None and self.collect(size) and self.extend(size):
            chunk = self.find(size)
        return chunk

    def find(self, size: int) -> Chunk | None:
        for number in range(bin_of(size), BINS):
            fitting = [
                (chunk.size, place, index)
                for place, region in enumerate(self.regions)
                for index, chunk in enumerate(region)
                if not chunk.used and bin_of(chunk.size) == number and chunk.size >= size
            ]
            if not fitting:
                continue
            _, place, index = min(fitting)
            region = self.regions[place]
            chunk = region[index]
            if chunk.size >= 2 * size or chunk.size - size >= 128 << 20:
                region.insert(index + 1, Chunk(chunk.size - size))
                chunk.size = size
            chunk.used = True
            self.in_use += chunk.size
            return chunk
        return None

    def extend(self, size: int) -> bool:
        available = (self.limit - self.pool()) // 256 * 256
        if size > available:
            return False
        if size > self.next_region:
            while size > self.next_region:
                self.next_region *= 2
            self.regions.append([Chunk(min(self.next_region, available))])
        else:
            self.regions.append([Chunk(min(self.next_region, available))])
            self.next_region *= 2
        self.peak_pool = max(self.peak_pool, self.pool())
        return True

    def collect(self, size: int) -> bool:
        idle = [region for region in self.regions if not any(chunk.used for chunk in region)]
        together = sum(chunk.size for region in idle for chunk in region)
        if not idle or size > self.limit - self.pool() + together:
            return False
        self.regions = [region for region in self.regions if region not in idle]
        return True

    def free(self, chunk: Chunk) -> None:
        chunk.used = False
        self.in_use -= chunk.size
        for region in self.regions:
            if chunk not in region:
                continue
            merged: list[Chunk] = []
            for each in region:
                if merged and not each.used and not merged[-1].used:
                    merged[-1].size += each.size
                else:
                    merged.append(each)
            region[:] = merged
            return
