"""What may change in a tf.data pipeline to save host memory: settings of the job. ``run/keras`` makes the changes.

They save nothing on the GPU: plans take them where they are told how much RAM the host has.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.data.pipeline.buffers import Buffer, Pipeline
from oomproof.data.pipeline.sizes import NUMBERS, name_stages, sizes_of
from oomproof.data.pipeline.stages import AUTOTUNE, Stage
from oomproof.data.pipeline.warnings import WORTH, show_size
from oomproof.sources.job import Knob, Option, Setting

_LEAST_SHUFFLED = 16
"""a shuffle of fewer elements hardly mixes"""


def pipeline_knobs(pipeline: Pipeline) -> tuple[Knob, ...]:
    """Names and settings are those of ``changes.keras.pipeline.rebuild_dataset``; a note has the bytes that stay."""
    found = []
    for name, stage in name_stages(pipeline.last).items():
        kind, _ = NUMBERS[stage.kind]
        buffer = next((each for each in pipeline.buffers if each.of is stage and not each.shared), None)
        options = tuple(_options(name, kind, stage, buffer))
        if len(options) > 1:
            found.append(Knob(name, options, *_PROMISES[kind], host=True))
    return tuple(found)


def pipeline_settings(last: Stage) -> tuple[Setting, ...]:
    """The sizes of the job's own pipeline, which may be set to see what others would keep."""
    return tuple(Setting(name, size, _HELP[name.partition("_")[0]]) for name, size in sizes_of(last).items())


_HELP = {
    "shuffle": "elements that the pipeline's shuffle() keeps in host RAM",
    "prefetch": "elements that the pipeline's prefetch() keeps ready in host RAM; -1: AUTOTUNE",
    "map": "parallel calls of the pipeline's map(); -1: AUTOTUNE",
    "interleave": "parallel calls of the pipeline's interleave(); -1: AUTOTUNE",
}


def advise_on_buffers(pipeline: Pipeline) -> list[str]:
    """The setting that frees most host RAM, where a buffer is worth it, with what is left."""
    best: tuple[int, str] | None = None
    for knob in pipeline_knobs(pipeline):
        buffer = next(each for each in pipeline.buffers if each.of is name_stages(pipeline.last)[knob.name])
        freed = buffer.expected * 3 // 4
        if freed < WORTH or (best is not None and freed <= best[0]):
            continue
        most = buffer.expected // 4 // buffer.element
        value = next((each.value for each in knob.options[1:] if each.value <= most), None)
        if value is not None:
            less = "; it mixes less, which is another training" if knob.promise == "different" else ""
            told = (
                f"--set {knob.name}={value} would keep {show_size(value * buffer.element)} of the "
                f"{show_size(buffer.expected)}"
            )
            best = freed, f"for a host with little RAM: {told}{less}. plan.batches(dataset) makes that change"
    return [] if best is None else [best[1]]


_PROMISES = {
    "shuffle": ("different", "images come in an order that is less mixed"),
    "prefetch": ("identical", "the same batches in the same order; fewer of them wait"),
    "map": ("identical", "the same elements in the same order, fewer made at a time (with deterministic=True)"),
    "interleave": ("identical", "the same elements in the same order, fewer files read at a time"),
}


def _options(name: str, kind: str, stage: Stage, buffer: Buffer | None) -> Iterator[Option]:
    present = stage.settings.get(NUMBERS[stage.kind][1])
    if present is None or buffer is None or not buffer.element:
        return
    each = buffer.element
    yield Option(present, {name: present}, note=f"keeps {show_size(buffer.expected)}")
    if kind == "shuffle":
        size, harm = buffer.count // 2, 0.05  # what is there, where that is less than the buffer
        while size >= _LEAST_SHUFFLED:
            yield Option(size, {name: size}, harm, f"keeps {show_size(size * each)}")
            size, harm = size // 2, min(1.0, harm * 2)
    else:
        for size in (8, 4, 2, 1):
            if present == AUTOTUNE or size < present:
                yield Option(size, {name: size}, note=f"keeps {show_size(size * each)}")
