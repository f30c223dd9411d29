"""What may change in a tf.data pipeline to save host memory. ``run/keras/pipeline.py`` makes the changes.

They save nothing on the GPU, so plans for a GPU do not take them; they are for a host that is too small.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.sources.job import Knob, Option
from oomproof.trace.tensorflow.pipeline.buffers import Buffer, Pipeline
from oomproof.trace.tensorflow.pipeline.stages import AUTOTUNE, Stage
from oomproof.trace.tensorflow.pipeline.warnings import said

_NAMES = {
    "Shuffle": "shuffle",
    "ShuffleAndRepeat": "shuffle",
    "Prefetch": "prefetch",
    "ParallelMap": "map",
    "ParallelInterleave": "interleave",
}
_LEAST_SHUFFLED = 16
"""a shuffle of fewer elements hardly mixes"""


def pipeline_knobs(pipeline: Pipeline) -> tuple[Knob, ...]:
    """Names and settings are those of ``oomproof.run.keras.pipeline.rebuilt``; a note has the bytes that stay."""
    counts: dict[str, int] = {}
    found = []
    for stage in pipeline.last.walk():
        kind = _NAMES.get(stage.kind)
        if kind is None:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        name = kind if counts[kind] == 1 else f"{kind}_{counts[kind]}"
        buffer = next((each for each in pipeline.buffers if each.of is stage and not each.shared), None)
        options = tuple(_options(name, kind, stage, buffer))
        if len(options) > 1:
            found.append(Knob(name, options, *_PROMISES[kind]))
    return tuple(found)


_PROMISES = {
    "shuffle": ("different", "images come in an order that is less mixed"),
    "prefetch": ("identical", "the same batches in the same order; fewer of them wait"),
    "map": ("identical", "the same elements in the same order, fewer made at a time (with deterministic=True)"),
    "interleave": ("identical", "the same elements in the same order, fewer files read at a time"),
}


def _options(name: str, kind: str, stage: Stage, buffer: Buffer | None) -> Iterator[Option]:
    number = "buffer_size" if kind in ("shuffle", "prefetch") else "num_parallel_calls"
    present = stage.settings.get(number)
    if present is None or buffer is None or not buffer.element:
        return
    each = buffer.element
    yield Option(present, {name: present}, note=f"keeps {said(buffer.expected)}")
    if kind == "shuffle":
        size, harm = buffer.count // 2, 0.05  # what is there, where that is less than the buffer
        while size >= _LEAST_SHUFFLED:
            yield Option(size, {name: size}, harm, f"keeps {said(size * each)}")
            size, harm = size // 2, min(1.0, harm * 2)
    else:
        for size in (8, 4, 2, 1):
            if present == AUTOTUNE or size < present:
                yield Option(size, {name: size}, note=f"keeps {said(size * each)}")
