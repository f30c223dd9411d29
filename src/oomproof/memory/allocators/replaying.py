"""Serves a Timeline's blocks from any of the allocators here, in the order in which they are wanted and given back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oomproof.memory.timeline import Ints, Timeline


class Allocator(Protocol):
    """An allocator's state. Addresses and bytes are plain numbers; nothing is taken from the system."""

    reserved: int
    peak: int
    retries: int

    def serve(self, size: int) -> tuple[int, int] | None:
        """(address, bytes) of the block handed out for ``size`` bytes; None where there is no more room."""
        ...

    def free(self, address: int, size: int, requested: int) -> None: ...


@dataclass(frozen=True)
class Replay:
    """Bytes the allocator held while it served a Timeline."""

    allocated: int
    """peak of the blocks handed out, as torch.cuda.max_memory_allocated or TensorFlow's MaxInUse count them"""
    reserved: int
    """peak of what was taken from the device, as torch.cuda.max_memory_reserved counts it; TensorFlow's pool"""
    reserved_end: int
    idle: int
    """reserved but not handed out, when reserved first reached its peak: cache and fragments"""
    retries: int
    """requests for which something cached was given back to the device to make room"""
    failed: int | None
    """row of the Timeline's block that could not be served within capacity; the replay stops there"""


@dataclass(frozen=True)
class Placement:
    """Where each row of the Timeline was placed: address and bytes, -1 and 0 if it never was."""

    address: Ints
    size: Ints


def serve_history(timeline: Timeline, memory: Allocator, granule: int) -> tuple[Replay, Placement]:
    """The replay of a whole history, and the place of every block. Sizes are rounded up to ``granule``."""
    serve, free = memory.serve, memory.free
    wanted = (-(-timeline.bytes // granule) * granule).tolist()
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
