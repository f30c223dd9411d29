"""Device memory that a training holds all the time besides its tensors: workspaces, gradient buckets, context."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Range
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import KINDS, Timeline

MIB = 1 << 20

CUBLAS = 8519680
"""cuBLAS workspace of one thread: PyTorch's default ":4096:2:16:8", in KiB times count"""
CUBLAS_HOPPER = 32 * MIB
_THREADS = 2
"""forward and backward run in threads of their own, each with its own cuBLAS handle and workspace"""

BUCKETS = "(ddp buckets)"
LIBRARIES = "(cublas)"


def with_lasting(timeline: Timeline, device: Device, runtime: Runtime) -> Timeline:
    """The Timeline with what lasts from the first forward on. TensorFlow's libraries keep theirs outside of its
    allocator, in what it leaves them."""
    if timeline.about.allocator == "bfc":
        return timeline
    blocks = [(LIBRARIES, "workspace", CUBLAS_HOPPER if device.capability[0] >= 9 else CUBLAS)] * _THREADS
    if runtime.ddp:
        blocks.append((BUCKETS, "gradient", trained_bytes(timeline)))
        if runtime.gradient_as_bucket_view:
            timeline = _in_buckets(timeline)
    return _added(timeline, blocks)


def _in_buckets(timeline: Timeline) -> Timeline:
    """Gradients are views of the buckets, which outlive zero_grad: each is made by itself, copied into its bucket and
    freed. Measured with two real gloo ranks: without this, the peak came out 7 to 14 % too low."""
    gradients = timeline.kind == KINDS.index("gradient")
    return replace(timeline, died=np.where(gradients, timeline.born + 1, timeline.died))


def trained_bytes(timeline: Timeline) -> int:
    """Bytes of one set of gradients."""
    gradients = timeline.kind == KINDS.index("gradient")
    ends = gradients & (timeline.died >= timeline.ticks)
    return int(timeline.bytes[ends].sum())


def _added(timeline: Timeline, blocks: list[tuple[str, str, int]]) -> Timeline:
    """Blocks that are born before everything else and never die."""
    count = len(blocks)
    owners, names = list(timeline.owners), [owner for owner, _, _ in blocks]
    owners += [name for name in dict.fromkeys(names) if name not in owners]
    join = np.concatenate
    calls = timeline.calls
    return replace(
        timeline,
        born=join([np.arange(count), timeline.born + count]),
        died=join([np.full(count, timeline.ticks + count), timeline.died + count]),
        bytes=join([np.array([size for *_, size in blocks], dtype=np.int64), timeline.bytes]),
        kind=join([np.array([KINDS.index(kind) for _, kind, _ in blocks], dtype=np.int64), timeline.kind]),
        phase=join([np.zeros(count, dtype=np.int64), timeline.phase]),
        owner=join([np.array([owners.index(name) for name in names], dtype=np.int64), timeline.owner]),
        op=join([np.full(count, len(timeline.ops)), timeline.op]),
        owners=tuple(owners),
        ops=(*timeline.ops, "lasting"),
        calls=replace(calls, tick=calls.tick + count),
        mark_tick=np.where(timeline.mark_tick > 0, timeline.mark_tick + count, 0),
        ticks=timeline.ticks + count,
    )


_CONTEXT = {
    "kepler": (120, 80, 350),
    "maxwell": (180, 120, 500),
    "pascal": (230, 150, 550),
    "volta": (320, 250, 850),
    "turing": (260, 150, 700),
    "ampere": (330, 200, 850),
    "ada": (330, 200, 850),
    "hopper": (520, 400, 1100),
    "blackwell": (520, 350, 1200),
}
"""MiB (expected, low, high): the bare CUDA context and the kernels loaded into it. Estimates; no GPU was measured."""
_CONTEXT_UNKNOWN = (350, 150, 850)


def context(device: Device) -> Range:
    expected, low, high = _CONTEXT.get(device.architecture, _CONTEXT_UNKNOWN)
    return Range(expected * MIB, low * MIB, high * MIB)
