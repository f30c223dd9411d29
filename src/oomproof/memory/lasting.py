"""Device memory that a training holds all the time besides its tensors: workspaces, gradient buckets, context."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Range
from oomproof.memory.parallel import BUCKETS, gradient_set, with_exchange
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import KINDS, Timeline

MIB = 1 << 20

CUBLAS = 8519680
"""cuBLAS workspace of one thread: PyTorch's default ":4096:2:16:8", in KiB times count"""
CUBLAS_HOPPER = 32 * MIB
_THREADS = 2
"""forward and backward run in threads of their own, each with its own cuBLAS handle and workspace"""

LIBRARIES = "(cublas)"


def with_lasting(timeline: Timeline, device: Device, runtime: Runtime) -> Timeline:
    """The Timeline with what lasts from the first forward on. TensorFlow's libraries keep theirs outside of its
    allocator, in what it leaves them."""
    if timeline.about.allocator == "bfc":
        return timeline
    usual = CUBLAS_HOPPER if device.capability[0] >= 9 else CUBLAS
    # A job without matrix products leaves cuBLAS no workspace to measure; the next job may have them.
    each = max(usual, (device.workspace or 0) // _THREADS)
    blocks = [(LIBRARIES, "workspace", each)] * _THREADS
    if runtime.parallel.has_buckets:
        blocks.append((BUCKETS, "gradient", gradient_set(timeline)))
    return _add_blocks(with_exchange(timeline, runtime.parallel), blocks)


def _add_blocks(timeline: Timeline, blocks: list[tuple[str, str, int]]) -> Timeline:
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
        shape=join([np.zeros(count, dtype=np.int64), timeline.shape]),
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
"""MiB (expected, low, high): the bare CUDA context and the kernels loaded into it. Estimates; no GPU was measured here.
Published: a bare context takes 256 MiB on an RTX 3090 (torch 2.7, CUDA 12.8; github.com/invoke-ai/InvokeAI/issues/9413)
and 426 on an RTX 6000 Ada (torch 2.10, CUDA 13.0; github.com/unslothai/unsloth-zoo/pull/1053), kernels some 40 more
(xMem's table). Until CUDA 11.7 all kernels were loaded at once: 1001 and 1488 on an RTX 3090 (pytorch issues 54564 and
49877), which is beyond the upper figures."""
_CONTEXT_UNKNOWN = (350, 150, 850)


_OTHER_KERNELS = 0.25
"""how much more or less another job's kernels may take than those of the job that was measured: a guess"""


def context(device: Device) -> Range:
    """What was measured moves the expected figure and may raise the upper one. It never lowers that: kernels are loaded
    when they are first called, so a small job, or another version of PyTorch, says little of what a large one loads."""
    expected, low, high = (size * MIB for size in _CONTEXT.get(device.architecture, _CONTEXT_UNKNOWN))
    if device.context:
        lower, higher = (int(device.context * (1 + part)) for part in (-_OTHER_KERNELS, _OTHER_KERNELS))
        return Range(device.context, lower, max(high, higher))
    return Range(expected, low, high)
