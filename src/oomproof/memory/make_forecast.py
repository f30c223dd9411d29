"""Works out a Forecast: prices scratch, replays the allocator, holds the budget against what it reserves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from oomproof.memory.about import About
from oomproof.memory.allocators import bfc
from oomproof.memory.allocators import cuda as cuda_allocator
from oomproof.memory.allocators.bfc_regions import GRANULE as BFC_GRANULE
from oomproof.memory.allocators.replaying import Replay
from oomproof.memory.arena import lay_out_arena
from oomproof.memory.cards import jax_limits, tf_limits
from oomproof.memory.cards.devices import Device
from oomproof.memory.curve import draw_curve
from oomproof.memory.forecast import Forecast, Range, Shortage
from oomproof.memory.host_memory import host_parts, sum_of
from oomproof.memory.lasting import context, with_lasting
from oomproof.memory.owners import stages
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch import Price, cpu, cuda, price_calls, recurrent
from oomproof.memory.settings import Settings
from oomproof.memory.thirsty_calls import most_reserved
from oomproof.memory.timeline import Timeline

GRANULE = 512

UNMODELLED = {"cpu": 0.02, "cuda": 0.08}
"""What the upper figure adds for all that no model covers, by dialect: fitted, docs/accuracy.md."""

OTHER_RACES = 0.06
"""At least that much where a step may run in many orders, of which a few are looked at. A real ResNet50 was seen 3 %
above the highest of them."""

RARE_ORDERS = {"cpu": 0.03, "cuda": 0.0}
"""By how much an order that is not among those looked at may be lower, by dialect. On a CPU: of 120 processes of a
Faster R-CNN that were followed, one was 1.8 % below the lowest of the first 15, and a real one was such. A GPU's one
queue had the same peak in all processes."""

SLACK = 0.01
"""Part of the peak by which made-up values (how many anchors match, how many boxes survive) may be off."""

DATASET = "the dataset in host RAM"
BETWEEN_STEPS = "validation and what happens between steps"
OTHERS_BETWEEN = "what else happens between steps"
NOT_COUNTED = ("other processes on the device", BETWEEN_STEPS, "NCCL's buffers", DATASET)


@dataclass(frozen=True)
class Terms:
    """What a device's side of the forecast rests on: how scratch is priced, what is added, what surrounds it."""

    prices: Price
    granule: int
    margin: float
    around: Range
    """outside of the allocator: the CUDA context"""
    replay: Callable[[Timeline, int | None], Replay] | None
    """the framework's allocator, without a limit or within one; None: blocks come straight from the system"""
    room: int
    """what the allocator may hold, with the context as expected"""
    room_at_worst: int
    """and if everything is as large as it can be"""
    notes: tuple[str, ...] = ()
    keeps: bool = False
    """the allocator has a share of the device and gives nothing of it back"""
    read_by: tuple[str, str] = ("max_memory_allocated", "max_memory_reserved")
    """what the framework calls the bytes that its allocator has handed out, and those that it holds"""

    @property
    def caching(self) -> bool:
        """Whether there is an allocator between the blocks and the device, which leaves gaps."""
        return self.replay is not None


def terms(timeline: Timeline, device: Device, runtime: Runtime) -> Terms:
    about = timeline.about
    unmodelled = max(UNMODELLED[about.dialect], OTHER_RACES if about.orders else 0)
    margin = (1 + unmodelled) * order_spread(timeline)
    if about.dialect == "cpu":
        prices = cpu.price(about.threads, half=about.half_on_cpu)
        return Terms(prices, 1, margin, Range(0, 0, 0), None, device.budget, int(device.budget / margin))
    around = context(device)
    if about.allocator == "bfc":
        return _bfc(timeline, device, runtime, around, margin)
    rules = cuda_allocator.CudaRules(runtime.expandable_segments, runtime.max_split_size_mb)
    return Terms(
        prices=cuda.price(device, runtime.cudnn_benchmark),
        granule=GRANULE,
        margin=margin,
        around=around,
        replay=lambda history, capacity: cuda_allocator.replay(history, rules, capacity),
        room=device.budget - around.expected,
        room_at_worst=max(0, int((device.budget - around.high) / margin)),
    )


def _bfc(timeline: Timeline, device: Device, runtime: Runtime, around: Range, margin: float) -> Terms:
    """TensorFlow and JAX share an allocator, and differ in how much of a card they let it have."""
    limits = jax_limits if timeline.about.limits == "jax" else tf_limits
    # Kernels that are loaded later go into what TensorFlow leaves free.
    room = limits.limit(device, runtime, around.expected)
    replay = bfc.replay if runtime.memory_growth else bfc.replay_at_once
    largest = cuda.LARGEST_OF_TENSORFLOW if limits is tf_limits else cuda.LARGEST_FOURIER
    return Terms(
        # TensorFlow and XLA try the convolutions and take the fastest, as PyTorch's benchmark mode does.
        prices=cuda.price(device, benchmark=True, largest=largest),
        granule=BFC_GRANULE,
        margin=margin,
        around=around,
        replay=lambda history, capacity: replay(lay_out_arena(history), capacity),
        room=room,
        room_at_worst=max(0, int(min(room, device.budget - around.high) / margin)),
        keeps=True,
        notes=limits.notes(device, runtime, around.expected),
        read_by=limits.READ_BY,
    )


def order_spread(timeline: Timeline) -> float:
    """How much higher the peak is in the worst of the orders in which a framework may run the step."""
    return max(1.0, max(timeline.about.orders.values(), default=0) / max(1, timeline.peak().bytes))


def lowest_order(timeline: Timeline) -> float:
    """How much lower it may be in the best of them, as a part."""
    if not timeline.about.orders:
        return 1.0
    lowest = min(1.0, min(timeline.about.orders.values()) / max(1, timeline.peak().bytes))
    return lowest * (1 - RARE_ORDERS[timeline.about.dialect])


def build_forecast(timeline: Timeline, device: Device, runtime: Runtime, job: str, settings: Settings) -> Forecast:
    held = terms(timeline, device, runtime)
    margin, granule, around = held.margin, held.granule, held.around
    base = timeline if timeline.about.recorded or not held.caching else with_lasting(timeline, device, runtime)
    scratch = price_calls(base, held.prices)
    expected, low, high = (base.with_scratch(each) for each in scratch)
    high, lean = recurrent.widen_reserves(high), recurrent.widen_reserves(low)
    likely = _serve_history(expected, low, held.replay, held.room)
    worst = _serve_history(high, lean, held.replay, held.room_at_worst)
    whole = likely.timeline.round_up(granule)
    peak = whole.peak()

    least = low.round_up(granule).peak().bytes * lowest_order(timeline)
    allocated = Range(
        peak.bytes,
        int(min(least, timeline.about.least or least) * (1 - SLACK)),
        int(max(peak.bytes, worst.timeline.round_up(granule).peak().bytes) * margin),
    )
    most = worst.reserved
    if held.replay is not None and not held.keeps and not timeline.about.recorded:
        most = most_reserved(base, scratch, held.replay)
    reserved = Range(
        likely.reserved,
        min(likely.reserved, allocated.low),
        max(int(max(likely.reserved, most, allocated.high / margin) * margin), timeline.about.before_steps),
    )
    on_device = Range(reserved.expected + around.expected, reserved.low + around.low, reserved.high + around.high)
    wanted, gives_back = on_device.high, False
    if likely.shortage is None and worst.shortage is None:
        most = max(device.budget, _without_giving_back(lean, held))
        allocated, reserved, on_device = _cap_upper_figures(allocated, reserved, on_device, held, most)
        gives_back = held.caching and not held.keeps and on_device.high > device.budget
    in_ram, shm = host_parts(timeline, runtime)
    return Forecast(
        job=job,
        settings=settings,
        device=device,
        allocated=allocated,
        reserved=reserved,
        on_device=on_device,
        host=sum_of(in_ram),
        host_parts=in_ram,
        shm=shm,
        kinds=whole.by_kind(peak.tick),
        owners=stages(whole.by_owner(peak.tick)),
        phase=peak.phase,
        owner=peak.owner,
        op=peak.op,
        phases=whole.by_phase(),
        shortage=likely.shortage,
        shortage_at_worst=likely.shortage or worst.shortage,
        not_counted=(
            *timeline.about.not_counted,
            *_not_counted(timeline.about),
        ),
        notes=(*timeline.about.notes, *held.notes, *recurrent.notes(timeline)),
        read_by=held.read_by,
        curve=draw_curve(whole),
        modules=whole.by_owner(peak.tick),
        wanted=wanted,
        gives_back=gives_back,
        less_workspace=worst.less_workspace,
        batches_seen=timeline.about.batches_seen,
        unseen=timeline.about.unseen,
        room=held.room if held.room < device.budget - around.expected else None,
    )


def _not_counted(about: About) -> list[str]:
    every = [each for each in NOT_COUNTED if each != DATASET or not _knows_dataset(about)]
    return [OTHERS_BETWEEN if each == BETWEEN_STEPS and about.validated else each for each in every]


def _knows_dataset(about: About) -> bool:
    return about.pipeline is not None or bool(about.dataset)


def with_validation(training: Forecast, validation: Forecast) -> Forecast:
    """A forecast of both parts of a run."""
    rest = tuple(OTHERS_BETWEEN if each == BETWEEN_STEPS else each for each in training.not_counted)
    return replace(training, validation=validation, not_counted=rest)


def _without_giving_back(lean: Timeline, held: Terms) -> int:
    """Bytes on the device at worst, with the least workspace, if the allocator keeps its cache. On a full device
    PyTorch gives cached segments back, which is not counted on: of 185 batches that died (docs/accuracy.md), two would
    get through by that alone."""
    return held.around.high + int(held.replay(lean, None).reserved * held.margin) if held.replay else 0


def _cap_upper_figures(
    allocated: Range, reserved: Range, on_device: Range, held: Terms, most_on_device: int
) -> tuple[Range, Range, Range]:
    """The upper figures of a step that gets through at worst. On a full device cuDNN does with less workspace, so that
    no more is taken than there is. TensorFlow's allocator stays within its share, but whatever the context takes comes
    on top."""
    if held.replay is None:
        return allocated, reserved, on_device
    if held.keeps:
        most = max(reserved.expected, min(reserved.high, held.room))
        whole = most + held.around.high
    else:
        whole = max(on_device.expected, min(on_device.high, most_on_device))
        most = max(reserved.expected, min(reserved.high, whole - held.around.low))
    return (
        replace(allocated, high=max(allocated.expected, min(allocated.high, most))),
        replace(reserved, high=most),
        replace(on_device, high=max(on_device.expected, min(on_device.high, whole))),
    )


@dataclass(frozen=True)
class Served:
    """How the allocator gets through: the history that really happens, what is reserved, where the room runs out."""

    timeline: Timeline
    reserved: int
    shortage: Shortage | None = None
    less_workspace: bool = False
    """cuDNN has to do with as little as it can"""


def _serve_history(
    timeline: Timeline, lean: Timeline, replay: Callable[[Timeline, int | None], Replay] | None, room: int
) -> Served:
    """Serves a history within ``room`` bytes; without an allocator, block by block from the system.

    A reserve larger than the room is not a shortage yet: on a full device the allocator gives cached segments back and
    tries again, so the replay is repeated within the room. Nor is a workspace that does not fit: cuDNN then goes on
    with less, so what must fit is the ``lean`` history without workspaces.
    """
    if replay is None:
        return _from_system(timeline, room)
    free = replay(timeline, None)
    if free.reserved <= room:
        return Served(timeline, free.reserved)
    for history in (timeline, lean):
        held = replay(history, max(0, room))
        if held.failed is None:
            return Served(history, held.reserved, less_workspace=history is lean)
    assert held.failed is not None
    return Served(timeline, free.reserved, _shortage(lay_out_arena(lean), held.failed))


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
