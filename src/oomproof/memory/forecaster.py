"""Works out a Forecast: prices scratch, replays the allocator, holds the budget against what it reserves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from oomproof.memory.allocators.cuda import CudaRules, replay
from oomproof.memory.devices import Device
from oomproof.memory.forecast import Forecast, Range, Shortage
from oomproof.memory.host import host_memory
from oomproof.memory.lasting import context, with_lasting
from oomproof.memory.owners import stages
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch import cpu, cuda, priced
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


def forecast(timeline: Timeline, device: Device, runtime: Runtime, job: str, settings: Mapping[str, Any]) -> Forecast:
    dialect = str(timeline.about.get("dialect", "cuda"))
    margin = 1 + UNMODELLED[dialect]
    if dialect == "cpu":
        prices = cpu.price(int(timeline.about.get("threads", 1)))
        base, granule = timeline, 1
    else:
        prices = cuda.price(device, runtime.cudnn_benchmark)
        base, granule = with_lasting(timeline, device, runtime), GRANULE
    expected, low, high = (base.with_scratch(scratch) for scratch in priced(base, prices))
    rules = CudaRules(runtime.expandable_segments, runtime.max_split_size_mb)
    around = context(device)
    served, shortage = _served(expected, low, rules, device.budget - around.expected)
    served_worst, shortage_worst = _served(high, low, rules, int((device.budget - around.high) / margin))
    whole = expected.rounded(granule)
    peak = whole.peak()

    allocated = Range(
        peak.bytes,
        int(low.rounded(granule).peak().bytes * (1 - SLACK)),
        int(high.rounded(granule).peak().bytes * margin),
    )
    reserved = Range(served, min(served, allocated.low), int(max(served, served_worst) * margin))
    on_device = Range(reserved.expected + around.expected, reserved.low + around.low, reserved.high + around.high)
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
        kinds=whole.by_kind(peak.tick),
        owners=stages(whole.by_owner(peak.tick)),
        phase=peak.phase,
        owner=peak.owner,
        op=peak.op,
        phases=whole.by_phase(),
        shortage=shortage,
        shortage_at_worst=shortage or shortage_worst,
        not_counted=(*notes, *NOT_COUNTED),
    )


def _served(timeline: Timeline, lean: Timeline, rules: CudaRules, room: int) -> tuple[int, Shortage | None]:
    """(bytes the allocator reserves, where the room runs out).

    A reserve larger than the room is no shortage yet: on a full device the allocator gives cached segments back and
    tries again, so the replay is repeated within the room. Nor is a workspace that does not fit: cuDNN then goes on
    with less, so what must fit is the ``lean`` history without workspaces.
    """
    free = replay(timeline, rules)
    if free.reserved <= room:
        return free.reserved, None
    room = max(0, room)
    if replay(timeline, rules, room).failed is None:
        return room, None
    row = replay(lean, rules, room).failed
    if row is None:
        return room, None
    return free.reserved, Shortage(
        int(lean.bytes[row]),
        lean.phase_at(int(lean.born[row])),
        lean.owners[int(lean.owner[row])],
        lean.ops[int(lean.op[row])],
    )


def at_runtime(settings: Mapping[str, Any]) -> Runtime:
    """The Runtime part of a job's settings."""
    return replace(Runtime(), **{name: settings[name] for name in asdict(Runtime()) if name in settings})
