"""RAM of the training process and its data workers, and /dev/shm for the batches that pass between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace

import numpy as np

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.cards.devices import AMOUNT, UNITS
from oomproof.memory.cards.host_limits import find_ram_limit, find_shm_limit
from oomproof.memory.forecast import Range
from oomproof.memory.host_data import host_data_of
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import KINDS, Timeline

MIB = 1 << 20

TRAINER = Range(2600 * MIB, 1200 * MIB, 4500 * MIB)
"""Python, PyTorch and CUDA libraries in one process: an estimate. Measured: 0.66 GiB for the import without a GPU."""
TENSORFLOW = Range(2770 * MIB, 1200 * MIB, 4700 * MIB)
"""The same with TensorFlow and Keras: an estimate. Measured without a GPU: 0.66 GiB for the import of 2.21, where that
of PyTorch 2.14 took 0.49."""
BASE = "the training process"
LEFT_BY_LISTS = 0.2
"""part of a list's memory that the process keeps after it was freed: 0.2 was measured"""
FORKED = Range(16 * MIB, 6 * MIB, 400 * MIB)
"""A forked DataLoader worker beside its images and annotations: pages that it has written to. Measured: 11 to 15 MiB;
the upper figure has room for libraries that are loaded after the fork."""
KEPT_IMAGES, MAPPED = 138, 32 << 20
"""Images whose memory a worker keeps although they are freed, once it has made that many, and the size above which it
does not. Freeing a mapped block of up to 32 MiB makes glibc take all others up to that size from the heap. There an
aligned block asks for more than it keeps, so that it does not fit where one like it was before: a hole is used again
only when a neighbour is free as well. Measured (glibc 2.36): 140 with PyTorch's own collate function, which writes a
batch to shared memory; 6 to 213 where batches are lists, 30 where a batch is larger than 32 MiB.
MALLOC_TRIM_THRESHOLD_ keeps images out of the heap."""
KEPT_AT_WORST = 1.5
"""of KEPT_IMAGES"""
KEPT_BATCHES_AT_WORST = 110
"""The same in batches of up to 32 MiB, where a collate function of the user's own stacks images: the thread that sends
a batch frees it, at any time. Measured: 24 to 98, levelling off after some hundred batches (bench/host.py)."""
SPAWNED = Range(290 * MIB, 200 * MIB, 1200 * MIB)
"""A spawned one has Python and PyTorch of its own. Measured: 285 MiB, with a PyTorch of 2.14 without CUDA."""


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
    size = find_shm_limit() if given == "this" else int(_size_of(given, "shm"))
    if size < 0:
        raise InputError(f"shm must be a size of 0 or more, such as 64MiB; got {given!r}")
    return size


def _size_of(given: str | int, name: str) -> float:
    amount = AMOUNT.fullmatch(str(given).strip().lower())
    unit = (amount[2] or ("b" if isinstance(given, int) else "")) if amount else ""
    if amount is None or unit not in UNITS or not math.isfinite(size := float(amount[1]) * UNITS[unit]):
        raise InputError(f"{name} must be a size with its unit, such as 16GiB or 32GB, or `this`; got {given!r}")
    return size


def host_memory(timeline: Timeline, runtime: Runtime) -> tuple[Range, int]:
    """(RAM, bytes of /dev/shm). Annotations and caches are in it where a dataset was read (``about.dataset``), or its
    input pipeline (``about.pipeline``)."""
    parts, shm = host_parts(timeline, runtime)
    return sum_of(parts), shm


def host_parts(timeline: Timeline, runtime: Runtime) -> tuple[Mapping[str, Range], int]:
    """What takes the RAM, part by part, and bytes of /dev/shm: of all processes on one machine."""
    about, workers = timeline.about, runtime.workers
    inputs = np.where(timeline.kind == KINDS.index("input"), timeline.bytes, 0)
    batch = int(replace(timeline, bytes=inputs).curve().max(initial=0))  # each step may have one of its own
    waiting = workers * runtime.prefetch_factor * batch
    # With workers, the batch that is trained on came through shared memory as well.
    shm = waiting + batch if workers and batch else 0
    # What a worker puts together is one of those that wait; an augmentation takes more images than it gives.
    making = batch * (runtime.mixing - 1)
    kept = 0 if runtime.malloc_trim else _estimate_kept_images(about, batch)
    each = SPAWNED if runtime.worker_start == "spawn" else FORKED
    held = batch * 2 - (batch if workers else 0) + about.on_host  # a batch at hand, one on its way; optimizer state
    parts = {
        BASE: TENSORFLOW if about.framework.startswith("tensorflow") else TRAINER,
        "workers": Range(
            workers * (each.expected + max(making, kept)),
            workers * each.low,
            workers * (each.high + max(2 * (batch + making), _bound_kept_images(about, kept, batch))),
        ),
        "batches that wait": Range(shm, min(shm, batch), 2 * shm),
        "batches and state of the process": Range(held, held, held),
        "the input pipeline": Range(about.pipeline or 0, 0, max(about.pipeline or 0, about.pipeline_high)),
    }
    if runtime.mixing > 1 and not workers:
        parts["augmentation"] = Range(making, 0, 2 * making)
    if runtime.pin_memory:
        pinned = 1 << (batch - 1).bit_length() if batch else 0  # PyTorch rounds up to a power of two, and keeps it
        pinned *= workers * runtime.prefetch_factor + 1
        parts["pinned batches"] = Range(pinned, batch, 2 * pinned)
    later = sum(part.expected for name, part in parts.items() if name != BASE)
    parts |= dict(_of_dataset(about, runtime, later))
    count = runtime.processes
    every = {name: Range(*(count * size for size in astuple(part))) for name, part in parts.items() if part.high}
    return every, count * shm


def _estimate_kept_images(about: About, batch: int) -> int:
    """Bytes of images that are freed and still held."""
    if not about.settings.name_of("batch"):
        return 0  # how large one image is nobody knows
    image = batch // max(1, about.settings.images // about.settings.sharing)
    return KEPT_IMAGES * image if image <= MAPPED else 0


def _bound_kept_images(about: About, kept: int, batch: int) -> int:
    """``kept`` at worst."""
    stacked = KEPT_BATCHES_AT_WORST * batch if about.stacked_by_workers and kept and batch <= MAPPED else 0
    return max(int(kept * KEPT_AT_WORST), stacked)


def sum_of(parts: Mapping[str, Range]) -> Range:
    expected, low, high = (sum(sizes) for sizes in zip(*map(astuple, parts.values()), strict=True))
    return Range(expected, low, high)


def _of_dataset(about: About, runtime: Runtime, others: int) -> Iterator[tuple[str, Range]]:
    """What the dataset object itself holds, here and in the workers. ``others``: bytes that come after it is loaded."""
    spawned = runtime.workers if runtime.worker_start == "spawn" else 0
    arrays = runtime.arrays_mb * MIB
    yield "arrays of the dataset", Range(arrays * (1 + spawned), arrays, arrays * (2 + spawned))
    data = host_data_of(about.dataset)
    if data is None or about.pipeline is not None:  # an input pipeline is priced as it is
        return
    if runtime.annotations == "buffers":
        held = data.packed * (1 + spawned) + int(LEFT_BY_LISTS * data.listed)
        # At first there are entries, the bytes of each, and one array of all of them: what comes later may be less.
        first = max(0, data.listed + 2 * data.packed - held - others)
        yield "annotations", Range(held, data.packed, held + data.packed)
        yield "annotations, while they are packed", Range(first, 0, first + data.listed)
    elif spawned:
        every = data.listed * (1 + spawned)
        yield "annotations", Range(every, data.listed, int(every * 1.2))
    else:
        copied = data.count_copied(runtime.workers, for_ever=runtime.persistent_workers)
        yield "annotations", Range(data.listed + copied, data.listed, int(data.listed * (runtime.workers + 1) * 1.1))
    if runtime.ram_cache:
        # Each worker fills a cache of its own, with the images that fall to it: in the end with all.
        full = max(1, runtime.workers) if runtime.persistent_workers else 1
        yield "image cache", Range(data.decoded * full, 0, int(data.decoded * 1.1) * max(1, runtime.workers))
