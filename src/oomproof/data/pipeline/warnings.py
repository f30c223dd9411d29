"""What is unwise in a pipeline, in words, with the bytes at stake and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.data.pipeline.buffers import COPIES, Buffer, Element, Pipeline
from oomproof.data.pipeline.stages import Stage

MIB, GIB = 1 << 20, 1 << 30
WORTH = 256 * MIB
"""bytes below which nothing is said"""
SMALLER = 10
"""times by which an element must have been smaller before a function was applied, for the order to matter"""
_BATCHES = ("Batch", "ParallelBatch", "PaddedBatch")
_FUNCTIONS = ("Map", "ParallelMap", "Interleave", "ParallelInterleave", "FlatMap")


def warnings_of(pipeline: Pipeline, ram: int | None = None) -> tuple[str, ...]:
    """``ram``: bytes of the machine that trains, if known."""
    found: list[str] = []
    for stage in pipeline.last.walk():
        if stage.kind == "Shuffle":
            found += _shuffle(pipeline, stage)
        elif stage.kind == "Cache" and "on_disk" not in stage.facts:
            found += _cache(pipeline, stage, ram)
        elif stage.kind == "Prefetch":
            found += _prefetch(pipeline, stage)
    found += _arrays(pipeline)
    found += _warn_of_shapes(pipeline)
    if ram is not None and pipeline.expected > ram:
        found.append(
            f"the input pipeline needs {show_size(pipeline.expected)} of host memory, and there are {show_size(ram)}: "
            "the system will kill the training (exit code 137)"
        )
    return tuple(dict.fromkeys(found))


def _shuffle(pipeline: Pipeline, stage: Stage) -> Iterator[str]:
    buffer = _of(pipeline, "shuffle", stage)
    if buffer is None or buffer.expected < WORTH:
        return
    size = f"shuffle({stage.settings.get('buffer_size')})"
    held = f"{buffer.count} x {show_size(buffer.element)} = {show_size(buffer.expected)}"
    batch = next((each for each in stage.inputs[0].walk() if each.kind in _BATCHES), None)
    if batch is not None and pipeline.element_of(stage).leading:
        one = buffer.expected // max(1, batch.settings.get("batch_size", 1))
        yield (
            f"{size} comes after batch({batch.settings.get('batch_size')}) and keeps batches: {held}. Before batch() "
            f"the same number keeps {show_size(one)}, and mixes images instead of batches"
        )
        return
    small = _smaller_before(pipeline, stage, buffer.element)
    if small is not None:
        yield (
            f"{size} keeps what a map has made large: {held}. Put shuffle before map, where an element has "
            f"{show_size(small.bytes)}: it then keeps {show_size(small.bytes * buffer.count)} (file names or records, "
            "not images)"
        )


def _cache(pipeline: Pipeline, stage: Stage, ram: int | None) -> Iterator[str]:
    buffer = _of(pipeline, "cache", stage)
    if buffer is None or buffer.expected < WORTH:
        return
    small = _smaller_before(pipeline, stage, buffer.element)
    instead = "cache('FILE') keeps it on disk"
    if small is not None:
        instead += f"; cache() before the map keeps {show_size(small.bytes * buffer.count)}"
    if ram is not None and buffer.expected > 0.8 * ram:
        yield (
            f"cache() keeps {show_size(buffer.expected)}, which does not fit in {show_size(ram)} of host memory: "
            f"{instead}"
        )
    elif ram is None or buffer.expected > 0.25 * ram:
        yield f"cache() keeps all {buffer.count} elements in memory: {show_size(buffer.expected)}. {instead}"


def _prefetch(pipeline: Pipeline, stage: Stage) -> Iterator[str]:
    buffer = _of(pipeline, "prefetch", stage)
    if buffer is None or max(buffer.expected, buffer.high if stage.settings.get("buffer_size") == -1 else 0) < WORTH:
        return
    if stage.settings.get("buffer_size") == -1:
        yield (
            f"prefetch(AUTOTUNE) may keep many batches of {show_size(buffer.element)}: it doubles whenever it runs "
            f"empty, up to half of the machine's memory; {show_size(buffer.high)} are counted at most. prefetch(2) "
            "bounds it"
        )
    elif buffer.count > 2:
        yield (
            f"prefetch({buffer.count}) keeps {buffer.count} x {show_size(buffer.element)} = "
            f"{show_size(buffer.expected)}; prefetch(2) keeps {show_size(2 * buffer.element)} and hides the same "
            "waiting time in most trainings"
        )


def _arrays(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.arrays < WORTH:
        return
    yield (
        f"from_tensor_slices takes whole arrays of {show_size(pipeline.arrays)}: {COPIES} copies exist when the "
        f"training starts ({show_size(COPIES * pipeline.arrays)}), {COPIES + 1} where the program keeps its own, and "
        "the dataset's stays. Read from files, or give file names and load images in map()"
    )


def _warn_of_shapes(pipeline: Pipeline) -> Iterator[str]:
    """Memory that grows: a graph or a compiled program for every shape that comes by."""
    element = pipeline.element
    shapes = [part.shape for part in pipeline.last.parts if part.item and part.is_guessed(element.leading)]
    if not shapes:
        return
    shape = "of unknown rank" if shapes[0] is None else str(shapes[0]).replace("None", "?")
    yield (
        f"batches change their shape ({shape}): memory grows with every new one. With jit_compile, Keras's default on "
        "a GPU, each shape is compiled and kept; a tf.function of your own without input_signature keeps a graph of "
        "each. Resize or pad to one shape (padded_batch with padded_shapes), or compile with jit_compile=False"
    )


def _of(pipeline: Pipeline, name: str, stage: Stage) -> Buffer | None:
    return next((each for each in pipeline.buffers if each.of is stage and each.stage == name), None)


def _smaller_before(pipeline: Pipeline, stage: Stage, size: int) -> Element | None:
    """What went into a function upstream, where that was much smaller than what is kept now."""
    best = None
    for each in stage.inputs[0].walk():
        if each.kind in _BATCHES:
            break
        if each.kind in _FUNCTIONS and each.inputs:
            before = pipeline.element_of(each.inputs[0])
            if before.bytes * SMALLER <= size:
                best = before
    return best


def show_size(size: float) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}" if unit == GIB else f"{size / unit:.0f} {name}"
    return f"{size:.0f} B"
