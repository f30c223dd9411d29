"""The data of a TensorFlow training in host memory: the user's dataset is read, not run, and every buffer is priced.

walk.py alone knows TensorFlow's datasets; it makes Stages, plain data, which prices.py and warnings.py read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.data.pipeline.buffers import Pipeline
from oomproof.data.pipeline.prices import price_pipeline
from oomproof.data.pipeline.sizes import with_batch, with_sizes
from oomproof.data.pipeline.stages import Assumed

__all__ = ["Assumed", "Pipeline", "pipeline_of"]


def pipeline_of(
    dataset: Any, assumed: Assumed | None = None, *, batch: int | None = None, sizes: Mapping[str, int] | None = None
) -> Pipeline:
    """What ``dataset`` will keep in host memory while a training reads it. No element of it is made. ``batch`` and
    ``sizes`` ({"shuffle": 500}, see sizes.py) stand for other numbers than it was written with.

    >>> pipeline_of(tf.data.Dataset.range(10).map(decode).shuffle(1000).batch(32).prefetch(2)).expected
    """
    from oomproof.data.pipeline.walk import read

    last, options = read(dataset)
    last = with_sizes(last, sizes or {})
    return price_pipeline(last if batch is None else with_batch(last, batch), options, assumed or Assumed())
