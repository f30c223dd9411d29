"""Measures what TensorFlow's own CPU allocator hands out while a step runs for real.

The allocator writes an event for every allocation once its statistics are on, which C++ code alone can switch on. The
profiler keeps these events, with the operation that asked, beside those that say when each operation ran.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

SWITCH = "_ZN3tsl23EnableCPUAllocatorStatsEv"
"""tsl::EnableCPUAllocatorStats(), seen in TensorFlow 2.21"""
LAST = "oomproof last step"


@dataclass(frozen=True)
class Measured:
    """One step. Bytes on top of what was there before it."""

    peak: int
    without_scratch: int
    """the peak if kernels took no memory for their own use"""
    order: tuple[str, ...]
    """operations as they began"""
    outputs: dict[str, int]
    """bytes that each operation took for its results"""
    scratch: dict[str, int]
    """and for its own use, while it ran"""


def measure(step: Callable[[], Any], settling: int = 1) -> Measured:
    """Runs ``step`` once, then ``settling`` times, and tells of one more. While it settles, allocations are seen
    already, so that it is known how much memory goes when the last step replaces a variable."""
    library = Path(tf.__file__).parent / "libtensorflow_framework.so.2"
    getattr(ctypes.CDLL(str(library)), SWITCH)()
    step()
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=3, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, options=options)
        try:
            for _ in range(settling):
                step()
            with tf.profiler.experimental.Trace(LAST):
                step()
        finally:
            tf.profiler.experimental.stop()
        [profile] = Path(folder).rglob("*.xplane.pb")
        return _read(profile.read_bytes())


def _read(profile: bytes) -> Measured:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(profile)
    memory: list[tuple[int, str, dict[str, Any]]] = []
    began: list[tuple[int, int, str]] = []
    start = 0
    for plane in space.planes:
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        events = {key: value.name for key, value in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                name, when = events[event.metadata_id], line.timestamp_ns * 1000 + event.offset_ps
                if name in ("MemoryAllocation", "MemoryDeallocation"):
                    memory.append((when, name, {names[stat.metadata_id]: _value(stat, names) for stat in event.stats}))
                elif name.startswith(LAST):
                    start = when
                elif ":" in name:
                    began.append((when, when + event.duration_ps, name.rpartition(":")[0]))
    assert start, "the profile does not show where the last step begins"
    began = sorted(each for each in began if each[0] >= start)
    return _told(start, sorted(memory, key=lambda each: each[0]), began)


def _value(stat: Any, names: dict[int, str]) -> Any:
    which = stat.WhichOneof("value")
    value = getattr(stat, which)
    return names.get(value, value) if which == "ref_value" else value


def _told(start: int, memory: list[tuple[int, str, dict[str, Any]]], began: list[tuple[int, int, str]]) -> Measured:
    ends = {name: end for _, end, name in began}
    freed = {}
    for when, name, facts in reversed(memory):  # when each block goes, looking back from the end
        if name == "MemoryDeallocation":
            freed[int(facts["addr"])] = when
        else:
            facts["freed"] = freed.pop(int(facts["addr"]), None)
    held: dict[int, tuple[int, bool]] = {}
    outputs: dict[str, int] = {}
    scratch: dict[str, int] = {}
    live = peak = base = kept = kept_peak = kept_base = 0
    for when, name, facts in memory:
        address = int(facts["addr"])
        if name == "MemoryAllocation":
            size, op = int(facts["requested_bytes"]), str(facts.get("tf_op"))
            # Some kernels ask for their result as if it were scratch; scratch is what goes before they end.
            own = facts.get("region_type") == "temp" and _within(facts["freed"], ends.get(op))
            held[address] = size, own
            live += size
            kept += 0 if own else size
            if when >= start:
                table = scratch if own else outputs
                table[op] = table.get(op, 0) + size
        elif address in held:
            size, own = held.pop(address)
            live -= size
            kept -= 0 if own else size
        if when < start:  # the level before the last step is the zero of its figures
            peak = base = live
            kept_peak = kept_base = kept
        peak, kept_peak = max(peak, live), max(kept_peak, kept)
    order = tuple(name for _, _, name in began)
    return Measured(peak - base, kept_peak - kept_base, order, outputs, scratch)


def _within(when: int | None, end: int | None) -> bool:
    return when is not None and end is not None and when <= end
