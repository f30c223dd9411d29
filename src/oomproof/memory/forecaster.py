"""Works out a Forecast: prices scratch, replays the allocator, holds the budget against what it reserves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from oomproof.memory.allocators.cuda import CudaRules, replay
from oomproof.memory.devices import Device
from oomproof.memory.forecast import Forecast, Range, Shortage
from oomproof.memory.host import host_memory
from oomproof.memory.lasting import context, with_lasting
from oomproof.memory.owners import stages
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch import Price, cpu, cuda, priced
from oomproof.memory.timeline import Timeline

GRANULE = 512

UNMODELLED = {"cpu": 0.02, "cuda": 0.08}
"""What the upper figure adds for all that no model covers, by dialect: fitted, docs/accuracy.md."""

SLACK = 0.01
"""Part of the peak by which made-up values (how many anchors match, how many boxes survive) may be off."""

NOT_COUNTED = (
    "memory that other processes take on the device after this forecast",
    "validation, and anything the training loop does between steps (logging images, saving checkpoints)",
    "NCCL's buffers in multi-GPU training",
    "the dataset in host RAM: annotations, caches, decoded images kept",
)


@dataclass(frozen=True)
class Terms:
    """What a device's side of the forecast rests on: how scratch is priced, what is added, what surrounds it."""

    prices: Price
    granule: int
    margin: float
    around: Range
    """outside of the allocator: the CUDA context"""
    caching: bool
    """blocks come from PyTorch's caching allocator, not straight from the system"""


def terms(timeline: Timeline, device: Device, runtime: Runtime) -> Terms:
    dialect = str(timeline.about.get("dialect", "cuda"))
    margin = 1 + UNMODELLED[dialect]
    if dialect == "cpu":
        return Terms(cpu.price(int(timeline.about.get("threads", 1))), 1, margin, Range(0, 0, 0), caching=False)
    return Terms(cuda.price(device, runtime.cudnn_benchmark), GRANULE, margin, context(device), caching=True)


def room_at_worst(device: Device, held: Terms) -> int:
    """What the allocator may reserve if everything is as large as it can be."""
    return max(0, int((device.budget - held.around.high) / held.margin))


def forecast(timeline: Timeline, device: Device, runtime: Runtime, job: str, settings: Mapping[str, Any]) -> Forecast:
    held = terms(timeline, device, runtime)
    margin, granule, around = held.margin, held.granule, held.around
    recorded = "snapshot" in str(timeline.about.get("source", ""))  # holds the libraries' workspaces already
    base = timeline if recorded or not held.caching else with_lasting(timeline, device, runtime)
    expected, low, high = (base.with_scratch(scratch) for scratch in priced(base, held.prices))
    rules = CudaRules(runtime.expandable_segments, runtime.max_split_size_mb) if held.caching else None
    likely = _served(expected, low, rules, device.budget - around.expected)
    worst = _served(high, low, rules, room_at_worst(device, held))
    whole = likely.timeline.rounded(granule)
    peak = whole.peak()

    allocated = Range(
        peak.bytes,
        int(low.rounded(granule).peak().bytes * (1 - SLACK)),
        int(max(peak.bytes, worst.timeline.rounded(granule).peak().bytes) * margin),
    )
    reserved = Range(
        likely.reserved,
        min(likely.reserved, allocated.low),
        int(max(likely.reserved, worst.reserved, allocated.high / margin) * margin),
    )
    on_device = Range(reserved.expected + around.expected, reserved.low + around.low, reserved.high + around.high)
    host, shm = host_memory(timeline, runtime)
    left_out = tuple(timeline.about.get("not_counted", ()))
    return Forecast(
        job=job,
        settings=settings,
        device=device,
        allocated=allocated,
        reserved=reserved,
        on_device=on_device,
        host=host,
        shm=shm,
        kinds=whole.by_kind(peak.tick),
        owners=stages(whole.by_owner(peak.tick)),
        phase=peak.phase,
        owner=peak.owner,
        op=peak.op,
        phases=whole.by_phase(),
        shortage=likely.shortage,
        shortage_at_worst=likely.shortage or worst.shortage,
        not_counted=(*left_out, *NOT_COUNTED),
        notes=tuple(timeline.about.get("notes", ())),
    )


@dataclass(frozen=True)
class Served:
    """How the allocator gets through: the history that really happens, what is reserved, where the room runs out."""

    timeline: Timeline
    reserved: int
    shortage: Shortage | None = None


def _served(timeline: Timeline, lean: Timeline, rules: CudaRules | None, room: int) -> Served:
    """Serves a history within ``room`` bytes; without rules of a caching allocator, block by block from the system.

    A reserve larger than the room is no shortage yet: on a full device the allocator gives cached segments back and
    tries again, so the replay is repeated within the room. Nor is a workspace that does not fit: cuDNN then goes on
    with less, so what must fit is the ``lean`` history without workspaces.
    """
    if rules is None:
        return _from_system(timeline, room)
    free = replay(timeline, rules)
    if free.reserved <= room:
        return Served(timeline, free.reserved)
    for history in (timeline, lean):
        held = replay(history, rules, max(0, room))
        if held.failed is None:
            return Served(history, held.reserved)
    assert held.failed is not None
    return Served(timeline, free.reserved, _shortage(lean, held.failed))


def _from_system(timeline: Timeline, room: int) -> Served:
    curve = timeline.curve()
    over = np.flatnonzero(curve > room)
    peak = int(curve.max(initial=0))
    if not len(over):
        return Served(timeline, peak)
    row = int(np.argmax(np.where(timeline.born <= over[0], timeline.born, -1)))
    return Served(timeline, peak, _shortage(timeline, row))


def _shortage(timeline: Timeline, row: int) -> Shortage:
    return Shortage(
        int(timeline.bytes[row]),
        timeline.phase_at(int(timeline.born[row])),
        timeline.owners[int(timeline.owner[row])],
        timeline.ops[int(timeline.op[row])],
    )


def at_runtime(settings: Mapping[str, Any]) -> Runtime:
    """The Runtime part of a job's settings."""
    return replace(Runtime(), **{name: settings[name] for name in asdict(Runtime()) if name in settings})
