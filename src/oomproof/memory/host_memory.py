"""RAM of the training process and its data workers, and /dev/shm for the batches that pass between them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from oomproof.errors import InputError
from oomproof.memory.cards.devices import AMOUNT, UNITS
from oomproof.memory.cards.host_limits import find_ram_limit, find_shm_limit
from oomproof.memory.forecast import Range
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import KINDS, Timeline

MIB = 1 << 20

TRAINER = Range(2600 * MIB, 1200 * MIB, 4500 * MIB)
"""Python, PyTorch and CUDA libraries in one process: an estimate. Measured: 0.66 GiB for the import without a GPU."""
WORKER = Range(400 * MIB, 150 * MIB, 1200 * MIB)
"""A forked DataLoader worker (pages it has written to, decoders, augmentation buffers): an estimate."""


def ram_of(given: str | int) -> int:
    """Bytes of host RAM that a user grants a job: ``16GiB``, ``32GB``, a number of bytes, or what ``this`` machine or
    container has.

    >>> ram_of("16GiB") >> 30
    16
    """
    size = find_ram_limit() if given == "this" else _size_of(given, "ram")
    if size < TRAINER.low:
        raise InputError(
            f"ram={given} is less than a training process takes by itself: at least {TRAINER.low / 2**30:.2f} GiB, "
            f"{TRAINER.expected / 2**30:.2f} as expected and {TRAINER.high / 2**30:.2f} at worst"
        )
    return int(size)


def shm_of(given: str | int) -> int:
    """Bytes that /dev/shm can hold: ``64MiB``, as Docker has it by itself, or what it can on ``this`` machine.

    >>> shm_of("64MiB") >> 20
    64
    """
    return find_shm_limit() if given == "this" else int(_size_of(given, "shm"))


def _size_of(given: str | int, name: str) -> float:
    amount = AMOUNT.fullmatch(str(given).strip().lower())
    unit = (amount[2] or ("b" if isinstance(given, int) else "")) if amount else ""
    if amount is None or unit not in UNITS or not math.isfinite(size := float(amount[1]) * UNITS[unit]):
        raise InputError(f"{name} must be a size with its unit, such as 16GiB or 32GB, or `this`; got {given!r}")
    return size


def host_memory(timeline: Timeline, runtime: Runtime) -> tuple[Range, int]:
    """(RAM, bytes of /dev/shm). The user's dataset itself (annotations, caches) is in it only where the tracer has read
    the input pipeline: ``about.pipeline`` then has the bytes it keeps."""
    inputs = np.where(timeline.kind == KINDS.index("input"), timeline.bytes, 0)
    batch = int(replace(timeline, bytes=inputs).curve().max(initial=0))  # each step may have one of its own
    waiting = runtime.workers * runtime.prefetch_factor * batch
    held = batch * 2 + timeline.about.on_host  # a batch at hand and one on its way; optimizer state
    data = timeline.about.pipeline or 0
    data_high = max(data, timeline.about.pipeline_high)

    def total(trainer: int, worker: int) -> int:
        return trainer + runtime.workers * worker + held

    ram = Range(
        total(TRAINER.expected, WORKER.expected) + waiting + data,
        total(TRAINER.low, WORKER.low),
        total(TRAINER.high, WORKER.high) + 2 * waiting + data_high,
    )
    return ram, waiting
