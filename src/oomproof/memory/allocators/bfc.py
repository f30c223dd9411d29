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

from dataclasses import dataclass

from oomproof.memory.allocators.bfc_regions import GRANULE, MIB, Regions
from oomproof.memory.allocators.replaying import Placement, Replay, served
from oomproof.memory.timeline import Timeline


@dataclass(frozen=True)
class BfcRules:
    """How TensorFlow was told to take memory."""

    growth: bool = True
    """tf.config.experimental.set_memory_growth: regions are taken as they are needed, not all of the limit at once"""


GROWING = BfcRules()
AT_ONCE = BfcRules(growth=False)


def replay(timeline: Timeline, rules: BfcRules = GROWING, capacity: int | None = None) -> Replay:
    """Serves the Timeline's blocks in their order; ``capacity`` is the allocator's limit in bytes. Where it is None
    there is no limit, and regions grow: what could be taken at once would be endless."""
    return place(timeline, rules, capacity)[0]


def place(timeline: Timeline, rules: BfcRules = GROWING, capacity: int | None = None) -> tuple[Replay, Placement]:
    """As ``replay``, with the place of every block."""
    return served(timeline, Regions(capacity, rules.growth or capacity is None), GRANULE)


def smallest_limit(timeline: Timeline, rules: BfcRules = GROWING, precision: int = MIB) -> int:
    """The least limit, to ``precision`` bytes, within which every block can be served."""
    enough = -(-replay(timeline).reserved // precision)
    too_little = timeline.rounded(GRANULE).peak().bytes // precision - 1
    # A little more room may by chance fragment worse; what is found is the end of the last stretch that fails.
    while enough - too_little > 1:
        middle = (enough + too_little) // 2
        if replay(timeline, rules, middle * precision).failed is None:
            enough = middle
        else:
            too_little = middle
    return enough * precision
