"""Works out a Forecast: prices scratch, replays the allocator at low, expected and upper figures, holds the budget against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from oomproof.memory.allocators.cuda import CudaRules, Replay, replay
from oomproof.memory.devices import Device
from oomproof.memory.forecast import Forecast, Range, Shortage
from oomproof.memory.host import host_memory
from oomproof.memory.lasting import context, with_lasting
from oomproof.memory.owners import stages
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch import cpu, cuda, priced
from oomproof.memory.timeline import Timeline

GRANULE = 512

UNMODELLED = 0.02
"""Part of the allocated peak that the upper figure adds for what no model covers."""

SLACK = 0.01
"""Part of the peak by which made-up values (how many anchors match, how many boxes survive) may be off."""

NOT_COUNTED = (
    "memory that other processes take on the device after this forecast",
    "validation, and anything the training loop does between steps (logging images, saving checkpoints)",
    "NCCL's buffers in multi-GPU training",
    "the dataset in host RAM: annotations, caches, decoded images kept",
)


def forecast(timeline: Timeline, device: Device, runtime: Runtime, job: str, settings: Mapping[str, Any]) -> Forecast:
    if timeline.about.get("dialect") == "cpu":
        prices = cpu.price(int(timeline.about.get("threads", 1)))
        base, granule = timeline, 1
    else:
        prices = cuda.price(device, runtime.cudnn_benchmark)
        base, granule = with_lasting(timeline, device, runtime), GRANULE
    expected, low, high = (base.with_scratch(scratch) for scratch in priced(base, prices))
    rules = CudaRules(runtime.expandable_segments, runtime.max_split_size_mb)
    served = {name: replay(each, rules) for name, each in (("expected", expected), ("low", low), ("high", high))}
    peak = expected.rounded(granule).peak()
    around = context(device)

    allocated = Range(
        peak.bytes,
        int(low.rounded(granule).peak().bytes * (1 - SLACK)),
        _upper(high.rounded(granule).peak().bytes),
    )
    reserved = Range(
        served["expected"].reserved,
        min(served["low"].reserved, allocated.low),
        _upper(max(served["high"].reserved, served["expected"].reserved)),
    )
    on_device = Range(
        reserved.expected + around.expected, reserved.low + around.low, reserved.high + around.high
    )
    host, shm = host_memory(timeline, runtime)
    notes = tuple(timeline.about.get("not_counted", ()))
    return Forecast(
        job=job,
        settings=settings,
        device=device,
        allocated=allocated,
        reserved=reserved,
        on_device=on_device,
        host=host,
        shm=shm,
        kinds=expected.rounded(granule).by_kind(peak.tick),
        owners=stages(expected.rounded(granule).by_owner(peak.tick)),
        phase=peak.phase,
        owner=peak.owner,
        op=peak.op,
        phases=expected.rounded(granule).by_phase(),
        shortage=_shortage(expected, rules, served["expected"], device.budget - around.expected, 1.0),
        shortage_at_worst=_shortage(high, rules, served["high"], device.budget - around.high, 1 + UNMODELLED),
        not_counted=(*notes, *NOT_COUNTED),
    )


def _upper(figure: int) -> int:
    return int(figure * (1 + UNMODELLED))


def _shortage(timeline: Timeline, rules: CudaRules, free: Replay, room: int, stretch: float) -> Shortage | None:
    """Where the budget runs out. A full device makes the allocator give cached segments back first, so a reserve
    that is larger than the room is no proof: the replay is repeated within it."""
    room = max(0, int(room / stretch))
    if free.reserved <= room:
        return None
    failed = replay(timeline, rules, room).failed
    if failed is None:
        return None
    return Shortage(
        int(timeline.bytes[failed]),
        timeline.phase_at(int(timeline.born[failed])),
        timeline.owners[int(timeline.owner[failed])],
        timeline.ops[int(timeline.op[failed])],
    )


def at_runtime(settings: Mapping[str, Any]) -> Runtime:
    """The Runtime part of a job's settings."""
    return replace(Runtime(), **{name: settings[name] for name in asdict(Runtime()) if name in settings})
