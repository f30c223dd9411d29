"""What a forecast is told of the data: bytes of host memory, warnings, what was guessed and what is not counted."""

from __future__ import annotations

from typing import Any

from oomproof.trace.tensorflow.pipeline import Assumed, Pipeline, pipeline_of
from oomproof.trace.tensorflow.pipeline.generators import pipeline_of_generator, warnings_of_generator
from oomproof.trace.tensorflow.pipeline.warnings import said, warnings_of


def facts_of_data(
    data: Any, assumed: Assumed | None = None, ram: int | None = None, *, batch: Any = None
) -> dict[str, Any]:
    """The part of a Timeline's ``about`` that ``data`` decide: ``pipeline``, ``pipeline_high`` (bytes), ``notes`` and
    ``not_counted``. ``batch``: one of a generator's. Empty where data are arrays, which fit() hands on as they are."""
    import keras

    if hasattr(data, "element_spec"):
        pipeline = pipeline_of(data, assumed)
        warned = warnings_of(pipeline, ram)
    elif isinstance(data, keras.utils.PyDataset) or (callable(data) and batch is not None):
        pipeline = pipeline_of_generator(data, batch)
        warned = warnings_of_generator(pipeline)
    else:
        return {}
    guessed = [f"input pipeline: {each}" for each in pipeline.assumed]
    return {
        "pipeline": pipeline.expected,
        "pipeline_high": pipeline.high,
        "notes": [summary(pipeline), *warned, *guessed],
        "not_counted": list(pipeline.not_counted),
    }


def summary(pipeline: Pipeline) -> str:
    largest = sorted(pipeline.buffers, key=lambda each: -each.expected)[:3]
    parts = ", ".join(f"{each.stage} {said(each.expected)}" for each in largest if each.expected)
    return f"the input pipeline keeps {said(pipeline.expected)} of host RAM, at most {said(pipeline.high)}: {parts}"
