"""Temporaries that a compiler has laid out in one block before the step runs: XLA's arena.

A Timeline with ``about.arena`` shows every buffer inside, so that reports can say what fills it. The allocator sees
one request a step: the whole arena.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oomproof.memory.timeline import KINDS, Timeline

IN_ARENA = tuple(KINDS.index(kind) for kind in ("activation", "gradient", "temporary", "workspace"))


def lay_out_arena(timeline: Timeline) -> Timeline:
    """The Timeline as the allocator sees it: in each step, the first block of the arena is as large as the arena at its
    fullest and lives as long, and the others take nothing. Rows stay where they are."""
    if not timeline.about.arena:
        return timeline
    inside = np.isin(timeline.kind, IN_ARENA)
    died, size = timeline.died.copy(), np.where(inside, 0, timeline.bytes)
    curve = replace(timeline, bytes=timeline.bytes - size).curve()
    firsts: list[int] = []
    for row in sorted(np.flatnonzero(inside).tolist(), key=lambda row: int(timeline.born[row])):
        if not firsts or timeline.born[row] >= died[firsts[-1]]:  # what came before is all gone: another step
            firsts.append(row)
        died[firsts[-1]] = max(died[firsts[-1]], timeline.died[row])
    for row in firsts:
        size[row] = curve[timeline.born[row] : died[row]].max(initial=0)
    return replace(timeline, died=died, bytes=size)
