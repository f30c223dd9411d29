"""Keras's own ways to feed a training from Python: PyDataset (Sequence) with workers and a queue, and plain generators.

Seen in Keras 3.15: with more than one worker (or processes) batches wait in a queue, which is full when its places are,
while one more waits for a place; without, tf.data fetches ahead with AUTOTUNE.
"""

from __future__ import annotations

from typing import Any

from oomproof.data.pipeline.buffers import Buffer, Element, Pipeline
from oomproof.data.pipeline.prices import PREFETCH, PREFETCH_HIGH
from oomproof.data.pipeline.stages import Options, Stage
from oomproof.data.pipeline.warnings import WORTH, show_size
from oomproof.errors import InputError

MIB = 1 << 20
WORKER, WORKER_HIGH = 250 * MIB, 1200 * MIB
"""a process of multiprocessing with Python and TensorFlow in it, beyond what it shares: an estimate"""
MANY = 8


def pipeline_of_generator(data: Any, batch: Any = None, times: float = 1.0) -> Pipeline:
    """``data``: a keras.utils.PyDataset, or a plain generator. ``batch``: one batch of it as arrays, tensors or
    TensorSpecs; without it a PyDataset is asked for its first, as Keras does before a training starts. ``times``: as
    large will batches be."""
    import keras

    queued = isinstance(data, keras.utils.PyDataset)
    if batch is None and not queued:
        raise InputError(
            "a plain generator was given without a batch; expected batch=(x, y) as it yields them: asking it for one "
            "would take that from the training"
        )
    size = int(times * _bytes(data[0] if batch is None else batch))
    if not queued:
        return price_generator(size)
    return price_generator(size, workers=data.workers, processes=data.use_multiprocessing, queue=data.max_queue_size)


def price_generator(batch: int, *, workers: int = 1, processes: bool = False, queue: int = 10) -> Pipeline:
    """``batch``: bytes of one."""
    element = Element(batch, batch)
    buffers = []
    if workers > 1 or (workers > 0 and processes):
        waiting = queue + 1 if queue > 0 else 2 * workers  # 0: a queue without an end
        buffers.append(
            _hold_batches("queue", waiting, waiting + workers, batch, f"max_queue_size={queue}, {workers} workers")
        )
    else:
        buffers.append(_hold_batches("prefetch", PREFETCH, PREFETCH_HIGH, batch, "AUTOTUNE, which Keras asks for"))
    if processes and workers > 0:
        buffers.append(Buffer("processes", workers, WORKER, workers * WORKER, workers * WORKER_HIGH, "Python in each"))
        buffers.append(_hold_batches("processes", workers, 2 * workers, batch, "the batch that each makes and sends"))
    buffers.append(_hold_batches("from_generator", 1, 2, batch, "the array that becomes a tensor"))
    buffers.append(_hold_batches("the training loop", 1, 2, batch, "the batch that is trained on"))
    last = Stage("Generator", (), settings={"workers": workers, "max_queue_size": queue, "processes": int(processes)})
    left_out = ("the generator's own data: arrays, lists and caches that its Python code keeps",)
    return Pipeline(last, tuple(buffers), element, (), left_out, Options(inject_prefetch=False))


def warnings_of_generator(pipeline: Pipeline) -> tuple[str, ...]:
    settings = pipeline.last.settings
    workers, queue = settings["workers"], settings["max_queue_size"]
    waiting = sum(each.expected for each in pipeline.buffers if each.stage == "queue")
    found = []
    if waiting >= WORTH:
        found.append(
            f"max_queue_size={queue} keeps {queue + 1} batches of {show_size(pipeline.element.bytes)} = "
            f"{show_size(waiting)}; max_queue_size=2 keeps {show_size(3 * pipeline.element.bytes)}"
        )
    if settings["processes"] and workers > 1:
        taken = sum(each.expected for each in pipeline.buffers if each.stage == "processes")
        found.append(
            f"{workers} worker processes take about {show_size(taken)} beside what they share, and arrays that the "
            "PyDataset holds once in each where they are written to (or processes are spawned, not forked)"
        )
    elif workers >= MANY:
        found.append(
            f"{workers} worker threads each make a batch of {show_size(pipeline.element.bytes)} at the same time, with "
            "all that decoding needs; 2 to 4 are enough where Python's lock is the limit"
        )
    return tuple(found)


def _hold_batches(stage: str, count: int, high: int, batch: int, why: str) -> Buffer:
    return Buffer(stage, count, batch, count * batch, high * batch, why)


def _bytes(batch: Any) -> int:
    import keras
    import numpy as np

    total = 0
    for each in keras.tree.flatten(batch):
        if each is None:
            continue
        array = each if hasattr(each, "shape") and hasattr(each, "dtype") else np.asarray(each)
        sides = [1 if side is None else int(side) for side in array.shape]
        total += int(np.prod(sides, dtype=np.int64)) * np.dtype(keras.backend.standardize_dtype(array.dtype)).itemsize
    return total
