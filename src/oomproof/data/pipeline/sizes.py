"""The numbers of a pipeline that may be others without it being another pipeline: buffers, parallel calls, the batch.

Names are those of ``oomproof.changes.keras.pipeline``, which changes the real dataset: ``shuffle`` is the last
shuffle in the code, ``shuffle_2`` the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oomproof.data.pipeline.stages import AUTOTUNE, Part, Stage
from oomproof.errors import InputError

NUMBERS = {
    "Shuffle": ("shuffle", "buffer_size"),
    "ShuffleAndRepeat": ("shuffle", "buffer_size"),
    "Prefetch": ("prefetch", "buffer_size"),
    "ParallelMap": ("map", "num_parallel_calls"),
    "ParallelInterleave": ("interleave", "num_parallel_calls"),
}
"""kind of a stage -> what it is called, and which of its settings is the number"""
BATCHES = ("Batch", "ParallelBatch", "PaddedBatch")


def name_stages(last: Stage) -> dict[str, Stage]:
    """The stages that have such a number, the last first."""
    counts: dict[str, int] = {}
    found = {}
    for stage in last.walk():
        if stage.kind in NUMBERS:
            kind, _ = NUMBERS[stage.kind]
            counts[kind] = counts.get(kind, 0) + 1
            found[kind if counts[kind] == 1 else f"{kind}_{counts[kind]}"] = stage
    return found


def sizes_of(last: Stage) -> dict[str, int]:
    numbers = {name: stage.settings.get(NUMBERS[stage.kind][1]) for name, stage in name_stages(last).items()}
    return {name: number for name, number in numbers.items() if number is not None}


def with_sizes(last: Stage, sizes: Mapping[str, int]) -> Stage:
    """The pipeline with other numbers."""
    for name, value in sizes.items():
        if value < 1 and value != AUTOTUNE:
            raise InputError(f"{name}={value} is not a size; expected a whole number from 1 on, or -1 for AUTOTUNE")
    new = {id(stage): sizes[name] for name, stage in name_stages(last).items() if name in sizes}

    def again(stage: Stage) -> Stage:
        settings = dict(stage.settings)
        if id(stage) in new:
            settings[NUMBERS[stage.kind][1]] = new[id(stage)]
        return replace(stage, settings=settings, inputs=tuple(map(again, stage.inputs)))

    return again(last) if new else last


def with_batch(last: Stage, size: int) -> Stage:
    """The pipeline with another number in its last batch(); itself where batches come from elsewhere."""
    return _rebatch(last, size)[0]


def _rebatch(stage: Stage, size: int) -> tuple[Stage, int]:
    """The stage, and the batch size that it had; 0 where it had none."""
    before = stage.settings.get("batch_size", 0) if stage.kind in BATCHES else 0
    if before:
        return _scale_stage(replace(stage, settings={**stage.settings, "batch_size": size}), before, size), before
    inputs = [_rebatch(each, size) for each in stage.inputs]
    before = max((each for _, each in inputs), default=0)
    if not before:
        return stage, 0
    return _scale_stage(replace(stage, inputs=tuple(each for each, _ in inputs)), before, size), before


def _scale_stage(stage: Stage, before: int, size: int) -> Stage:
    """Shapes that hold the batch, and how many batches there are."""
    elements = -(-stage.elements * before // size) if stage.elements > 0 else stage.elements
    return replace(stage, elements=elements, parts=tuple(_part(each, before, size) for each in stage.parts))


def _part(part: Part, before: int, size: int) -> Part:
    holds = part.shape is not None and part.shape[:1] == (before,)
    return replace(part, shape=(size, *part.shape[1:])) if holds and part.shape is not None else part
