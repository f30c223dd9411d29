"""TensorFlow's GPU allocator: what it holds to serve a Timeline, and the least memory it could do with.

    >>> from oomproof.memory.timeline import Builder
    >>> step = Builder()
    >>> weights = step.allocate(3 << 20, kind="parameter", owner="fc", op="variable")
    >>> result = replay(step.build())
    >>> result.allocated >> 20, result.reserved >> 20    # 3 MiB in a region of 4: the first of 2 would be too small
    (4, 4)
    >>> smallest_limit(step.build()) >> 20
    3

One stream, no virtual memory, garbage collection of free regions on: the defaults.
"""

from __future__ import annotations

from oomproof.memory.allocators.bfc_regions import GRANULE, MIB, Regions
from oomproof.memory.allocators.replaying import Placement, Replay, serve_history
from oomproof.memory.timeline import Timeline


def replay(timeline: Timeline, capacity: int | None = None) -> Replay:
    """With memory growth: regions are taken as they are needed. ``capacity`` is the allocator's limit in bytes."""
    return place_blocks(timeline, capacity)[0]


def replay_at_once(timeline: Timeline, capacity: int | None = None) -> Replay:
    """Without memory growth: one region of ``capacity`` bytes. Where that is None, the smallest that is enough."""
    enough = smallest_limit(timeline, growth=False) if capacity is None else capacity
    return serve_history(timeline, Regions(enough, growth=False), GRANULE)[0]


def place_blocks(timeline: Timeline, capacity: int | None = None) -> tuple[Replay, Placement]:
    """As ``replay``, with the place of every block."""
    return serve_history(timeline, Regions(capacity, growth=True), GRANULE)


def smallest_limit(timeline: Timeline, *, growth: bool = True) -> int:
    """The least limit within which every block can be served, to a MiB or a five-hundredth part.

    A little more room may by chance lead to worse fragments; what is found then is one of the limits that work.
    """
    peak = timeline.round_up(GRANULE).peak().bytes
    step = max(MIB, peak // 512)
    enough, too_little = -(-replay(timeline).reserved // step), peak // step - 1
    while not _enough(timeline, enough * step, growth):
        enough *= 2
    while enough - too_little > 1:
        middle = (enough + too_little) // 2
        if _enough(timeline, middle * step, growth):
            enough = middle
        else:
            too_little = middle
    return enough * step


def _enough(timeline: Timeline, limit: int, growth: bool) -> bool:
    return serve_history(timeline, Regions(limit, growth), GRANULE)[0].failed is None
