"""RAM of the training process and its data workers, and /dev/shm for the batches that pass between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oomproof.memory.forecast import Range
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import KINDS, Timeline

MIB = 1 << 20

TRAINER = Range(2600 * MIB, 1200 * MIB, 4500 * MIB)
"""Python, PyTorch and CUDA libraries in one process: an estimate. Measured: 0.66 GiB for the import without a GPU."""
WORKER = Range(400 * MIB, 150 * MIB, 1200 * MIB)
"""A forked DataLoader worker (pages it has written to, decoders, augmentation buffers): an estimate."""


def host_memory(timeline: Timeline, runtime: Runtime) -> tuple[Range, int]:
    """(RAM, bytes of /dev/shm). The user's dataset itself (annotations, caches) is in it only where the tracer has read
    the input pipeline: ``about["pipeline"]`` then has the bytes it keeps, ``about["pipeline_high"]`` at most."""
    inputs = np.where(timeline.kind == KINDS.index("input"), timeline.bytes, 0)
    batch = int(replace(timeline, bytes=inputs).curve().max(initial=0))  # each step may have one of its own
    waiting = runtime.workers * runtime.prefetch_factor * batch
    held = batch * 2 + int(timeline.about.get("on_host", 0))  # a batch at hand and one on its way; optimizer state
    data = int(timeline.about.get("pipeline", 0))
    data_high = max(data, int(timeline.about.get("pipeline_high", 0)))

    def total(trainer: int, worker: int) -> int:
        return trainer + runtime.workers * worker + held

    ram = Range(
        total(TRAINER.expected, WORKER.expected) + waiting + data,
        total(TRAINER.low, WORKER.low),
        total(TRAINER.high, WORKER.high) + 2 * waiting + data_high,
    )
    return ram, waiting
