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
        at = self.first_of_run(segment.blocks, size)
        while not (segment.blocks[at].backed and segment.blocks[at].size >= size):
            blocks = segment.blocks
            gap = at + blocks[at].backed
            have = blocks[at].size if blocks[at].backed else 0
            more = min(-(-(size - have) // page) * page, blocks[gap].size)
            if self.reserved() + more > self.capacity:
                return None
            blocks[gap].size -= more
            blocks.insert(gap, Block(more))
            segment.blocks = [b for b in blocks if b.size]
            self.merge(segment)  # what is before the run is in use, so its first block keeps its place
        return segment, segment.blocks[at]

    def first_of_run(self, blocks: list[Block], size: int) -> int:
        """The first block that is free and right before one without memory, or has none itself, with room behind it."""
        for at, block in enumerate(blocks):
            before_gap = block.backed and at + 1 < len(blocks) and not blocks[at + 1].backed
            if block.used or not (before_gap or not block.backed):
                continue
            run = 0
            for following in blocks[at:]:
                if following.used:
                    break
                run += following.size
            if run >= size:
                return at
        raise AssertionError("the last block has no end")

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
