"""PyTorch's CUDA caching allocator: what it reserves to serve a Timeline.

    >>> from oomproof.memory.timeline import Builder
    >>> step = Builder()
    >>> weights = step.allocate(3 << 20, kind="parameter", owner="fc", op="parameter")
    >>> result = replay(step.build())
    >>> result.allocated >> 20, result.reserved >> 20    # 3 MiB out of a segment of 20 MiB
    (3, 20)

One stream, no graph capture, no roundup_power2_divisions, no garbage collection threshold: the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oomproof.errors import InputError
from oomproof.memory.allocators.cuda_expandable import ExpandableSegments
from oomproof.memory.allocators.cuda_segments import GRANULE, LARGE_BUFFER, MIB, UNLIMITED, Segments
from oomproof.memory.timeline import Ints, Timeline


@dataclass(frozen=True)
class CudaRules:
    """The settings of PYTORCH_CUDA_ALLOC_CONF that change what is reserved."""

    expandable_segments: bool = False
    max_split_size_mb: int = 0
    """MiB; 0: blocks of any size may be split"""

    def __post_init__(self) -> None:
        if self.max_split_size_mb and self.max_split_size_mb <= LARGE_BUFFER // MIB:
            raise InputError(
                f"max_split_size_mb must be 0 (no limit) or more than {LARGE_BUFFER // MIB}, as PyTorch wants it; "
                f"got {self.max_split_size_mb}"
            )


@dataclass(frozen=True)
class Replay:
    """Bytes the allocator held while it served a Timeline."""

    allocated: int
    """peak of the blocks handed out, as torch.cuda.max_memory_allocated counts them"""
    reserved: int
    """peak of what was taken from the device, as torch.cuda.max_memory_reserved counts it"""
    reserved_end: int
    idle: int
    """reserved but not handed out, when reserved first reached its peak: cache and fragments"""
    retries: int
    """requests for which cached segments were given back to the device to make room"""
    failed: int | None
    """row of the Timeline's block that could not be served within capacity; the replay stops there"""


@dataclass(frozen=True)
class Placement:
    """Where each row of the Timeline was placed: address and bytes, -1 and 0 if it never was."""

    address: Ints
    size: Ints


DEFAULTS = CudaRules()


def replay(timeline: Timeline, rules: CudaRules = DEFAULTS, capacity: int | None = None) -> Replay:
    """Serves the Timeline's blocks in their order; ``capacity`` is the most the allocator may reserve, in bytes."""
    return place(timeline, rules, capacity)[0]


def place(timeline: Timeline, rules: CudaRules = DEFAULTS, capacity: int | None = None) -> tuple[Replay, Placement]:
    """As ``replay``, with the place of every block."""
    max_split = rules.max_split_size_mb * MIB or UNLIMITED
    memory = (ExpandableSegments if rules.expandable_segments else Segments)(capacity, max_split)
    serve, free = memory.serve, memory.free
    wanted = (-(-timeline.bytes // GRANULE) * GRANULE).tolist()
    address_of, size_of = [-1] * len(wanted), [0] * len(wanted)
    allocated = peak = reserved = idle = 0
    failed = None
    for event in event_order(timeline).tolist():
        if event < 0:
            row = ~event
            allocated -= size_of[row]
            free(address_of[row], size_of[row], wanted[row])
            continue
        block = serve(wanted[event])
        if block is None:
            failed = event
        else:
            address_of[event], size_of[event] = block
            allocated += block[1]
            peak = max(peak, allocated)
        if memory.peak > reserved:
            reserved = memory.peak
            idle = reserved - allocated
        if failed is not None:
            break
    result = Replay(peak, reserved, memory.reserved, idle, memory.retries, failed)
    return result, Placement(np.array(address_of, dtype=np.int64), np.array(size_of, dtype=np.int64))


def event_order(timeline: Timeline) -> Ints:
    """Births as row numbers, deaths as ~row, in the order of their ticks; empty blocks and the end of time left out."""
    real = timeline.bytes > 0
    births = np.flatnonzero(real)
    deaths = np.flatnonzero(real & (timeline.died < timeline.ticks))
    # Should two share a tick, the death comes first: Timeline.curve counts what is live after it.
    ticks = np.concatenate([timeline.died[deaths] * 2, timeline.born[births] * 2 + 1])
    order: Ints = np.concatenate([~deaths, births])[np.argsort(ticks, kind="stable")]
    return order
