"""What a forecast is told of the data: bytes of host memory, warnings, what was guessed and what is not counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.data.pipeline import Assumed, Pipeline, pipeline_of
from oomproof.data.pipeline.generators import pipeline_of_generator, warnings_of_generator
from oomproof.data.pipeline.warnings import show_size, warnings_of


def describe_data(data: Any, assumed: Assumed | None = None, ram: int | None = None) -> dict[str, Any]:
    """The fields of About that ``data`` decide; none where they are arrays, which fit() hands on."""
    pipeline = pipeline_of_data(data, assumed)
    return {} if pipeline is None else describe_pipeline(pipeline, ram)


def pipeline_of_data(
    data: Any,
    assumed: Assumed | None = None,
    *,
    example: Any = None,
    times: float = 1.0,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Pipeline | None:
    """``data``: a tf.data.Dataset, with ``batch`` and ``sizes`` as for pipeline_of; or a PyDataset or a function that
    yields batches, of which ``example`` is one, and whose batches are ``times`` as large. None for arrays."""
    if hasattr(data, "element_spec"):
        return pipeline_of(data, assumed, batch=batch, sizes=sizes)
    import keras

    if isinstance(data, keras.utils.PyDataset) or (callable(data) and example is not None):
        return pipeline_of_generator(data, example, times)
    return None


def describe_pipeline(pipeline: Pipeline, ram: int | None = None) -> dict[str, Any]:
    """The fields of About that a pipeline decides: ``pipeline``, ``pipeline_high``, ``notes`` and ``not_counted``."""
    warned = warnings_of_generator(pipeline) if pipeline.last.kind == "Generator" else warnings_of(pipeline, ram)
    guessed = [f"input pipeline: {each}" for each in pipeline.assumed]
    return {
        "pipeline": pipeline.expected,
        "pipeline_high": pipeline.high,
        "notes": (summary(pipeline), *warned, *guessed),
        "not_counted": tuple(pipeline.not_counted),
    }


def summary(pipeline: Pipeline) -> str:
    largest = sorted(pipeline.buffers, key=lambda each: -each.expected)[:3]
    parts = ", ".join(f"{each.stage} {show_size(each.expected)}" for each in largest if each.expected)
    return (
        f"the input pipeline keeps {show_size(pipeline.expected)} of host RAM, at most {show_size(pipeline.high)}: "
        f"{parts}"
    )
