"""Which tracer a Keras step goes through: that of the framework below it, or XLA's compiler."""

from __future__ import annotations

from typing import Any

from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.sources.keras.xla import XlaChoice
from oomproof.trace.request import TraceRequest


def trace_model(
    model: Any, batch: Any, way: XlaChoice, *, backend: str, about: About, request: TraceRequest
) -> Timeline:
    """The step of a compiled model on a batch of KerasTensors."""
    if backend == "torch":
        from oomproof.trace.keras.on_torch import trace_keras as trace_on_torch

        return trace_on_torch(model, batch, about=about, patience=request.patience, progress=request.progress)
    import keras
    import tensorflow as tf

    from oomproof.trace.keras.blocks import with_blocks
    from oomproof.trace.keras.on_tensorflow import trace_keras
    from oomproof.trace.keras.on_xla import Backend, trace_with_xla

    specs = keras.tree.map_structure(lambda part: tf.TensorSpec(part.shape, part.dtype), batch)
    if way.target is None:
        return with_blocks(trace_keras(model, specs, about=about, progress=request.progress), model)
    compiler: Backend = "jax" if backend == "jax" else "tensorflow"
    return trace_with_xla(model, specs, way.target, backend=compiler, about=about, progress=request.progress)
