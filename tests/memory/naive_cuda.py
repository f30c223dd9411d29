"""A second, slow model of the CUDA caching allocator, to compare the fast one with.

Written from the rules alone: a segment is a list of blocks in the order of their addresses, and everything is found by
walking all of them. An expandable segment ends in one block without memory that never runs out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20
ENDLESS = 1 << 50


@dataclass(eq=False)
class Block:
    size: int
    used: bool = False
    backed: bool = True


@dataclass(eq=False)
class Segment:
    blocks: list[Block]
    small: bool
    number: int


@dataclass
class Naive:
    expandable: bool
    max_split: int
    capacity: int
    segments: list[Segment] = field(default_factory=list)
    made: int = 0
    allocated: int = 0

    def reserved(self) -> int:
        return sum(b.size for s in self.segments for b in s.blocks if b.backed)

    def serve(self, request: int) -> Block | None:
        size = -(-request // 512) * 512
        small = size <= MIB
        place = self.best_fit(size, small)
        if place is None:
            place = self.grow(size, small)
            if place is None and self.max_split < ENDLESS and not self.expandable and self.release_enough(size, small):
                place = self.grow(size, small)
            if place is None:
                self.release_all()
                place = self.grow(size, small)
            if place is None:
                return None
        segment, block = place
        rest = block.size - size
        if rest >= 512 if small or self.expandable else rest > MIB and size < self.max_split:
            block.size = size
            segment.blocks.insert(segment.blocks.index(block) + 1, Block(rest))
        block.used = True
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        self.allocated -= block.size
        block.used = False
        self.merge(next(s for s in self.segments if block in s.blocks))

    def merge(self, segment: Segment) -> None:
        merged: list[Block] = []
        for block in segment.blocks:
            if merged and not block.used and not merged[-1].used and block.backed == merged[-1].backed:
                merged[-1].size += block.size
            else:
                merged.append(block)
        segment.blocks = merged

    def free_blocks(self, small: bool) -> list[tuple[Segment, int, Block]]:
        every = [(s, i, b) for s in self.segments if s.small == small for i, b in enumerate(s.blocks)]
        return [(s, i, b) for s, i, b in every if b.backed and not b.used]

    def best_fit(self, size: int, small: bool) -> tuple[Segment, Block] | None:
        fitting = [p for p in self.free_blocks(small) if p[2].size >= size]
        fitting.sort(key=lambda p: (p[2].size, p[0].number, p[1]))
        if not fitting:
            return None

        def can_become(place: tuple[Segment, int, Block]) -> int:
            segment, at, block = place
            following = segment.blocks[at + 1 : at + 2]
            return block.size + sum(b.size for b in following if not b.backed)

        at = 0
        while at + 1 < len(fitting) and can_become(fitting[at + 1]) < can_become(fitting[at]):
            at += 1
        segment, _, block = fitting[at]
        if size < self.max_split <= block.size or (size >= self.max_split and block.size >= size + 20 * MIB):
            return None
        return segment, block

    def grow(self, size: int, small: bool) -> tuple[Segment, Block] | None:
        if self.expandable:
            return self.grow_expandable(size, small)
        length = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.reserved() + length > self.capacity:
            return None
        self.made += 1
        segment = Segment([Block(length)], small, self.made)
        self.segments.append(segment)
        return segment, segment.blocks[0]

    def grow_expandable(self, size: int, small: bool) -> tuple[Segment, Block] | None:
        page = 2 * MIB if small else 20 * MIB
        segment = next((s for s in self.segments if s.small == small), None)
        if segment is None:
            segment = Segment([Block(ENDLESS, backed=False)], small, int(small))
            self.segments.append(segment)
        while True:
            blocks = segment.blocks
            # Free and unbacked blocks in a row: their first, if together they are long enough and one lacks memory.
            for first in range(len(blocks)):
                if blocks[first].used or (first and not blocks[first - 1].used and blocks[first - 1].backed):
                    continue
                if blocks[first].backed and (first + 1 == len(blocks) or blocks[first + 1].backed):
                    continue
                run = 0
                for block in blocks[first:]:
                    if block.used:
                        break
                    run += block.size
                if run >= size:
                    break
            if blocks[first].backed and blocks[first].size >= size:
                return segment, blocks[first]
            at = first + blocks[first].backed
            have = blocks[first].size if blocks[first].backed else 0
            more = min(-(-(size - have) // page) * page, blocks[at].size)
            if self.reserved() + more > self.capacity:
                return None
            blocks[at].size -= more
            blocks.insert(at, Block(more))
            segment.blocks = [b for b in blocks if b.size]
            self.merge(segment)

    def release_enough(self, size: int, small: bool) -> bool:
        wanted = max(size, self.max_split)
        free = sorted(self.free_blocks(small), key=lambda p: (p[2].size, p[0].number, p[1]))
        for segment, _, block in free:
            if block.size >= wanted:
                self.segments.remove(segment)
                return True
        released = 0
        for segment, _, block in reversed(free):
            if released >= wanted or block.size < self.max_split:
                break
            released += block.size
            self.segments.remove(segment)
        return released >= wanted

    def release_all(self) -> None:
        if not self.expandable:
            self.segments = [s for s in self.segments if len(s.blocks) > 1 or s.blocks[0].used]
            return
        for segment in self.segments:
            page = 2 * MIB if segment.small else 20 * MIB
            pieces: list[Block] = []
            at = 0
            for block in segment.blocks:
                first, last = -(-at // page) * page, (at + block.size) // page * page
                if block.used or not block.backed or first >= last:
                    pieces.append(block)
                else:
                    pieces += [Block(first - at), Block(last - first, backed=False), Block(at + block.size - last)]
                at += block.size
            segment.blocks = [b for b in pieces if b.size]
            self.merge(segment)
