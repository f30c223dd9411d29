"""What Keras does with a batch in ``evaluate``, which ``fit`` calls between epochs: beside everything that a training
has left on the GPU, the optimizer's state among it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.memory.validation import as_validation
from oomproof.trace.keras.on_tensorflow import describe_model, variables_of, watching_layers
from oomproof.trace.tensorflow.graph.capture import capture, tensorflow
from oomproof.trace.tensorflow.session.steps import with_others
from oomproof.trace.tensorflow.trace_step import Dialect, Names, trace_step


def trace_test_step(
    model: Any,
    batch: Sequence[Any],
    *,
    dialect: Dialect = "cuda",
    capability: str = "8.0",
    about: About,
    progress: Callable[[str], None] = lambda text: None,
) -> Timeline:
    """``model`` is compiled and built, on Keras's TensorFlow backend; ``batch`` is what evaluate would hand to its
    test_step, as TensorSpecs."""
    tf = tensorflow()
    scopes: dict[str, str] = {}
    step = tf.autograph.experimental.do_not_convert(lambda *data: model.test_step(data))
    with watching_layers(model, scopes):
        captured = capture(tf.function(step, autograph=False), batch)
    step_of_all = trace_step(
        with_others(tf, captured),
        names=Names(scopes, variables_of(model)),
        dialect=dialect,
        capability=capability,
        about=describe_model(model, about),
        progress=progress,
    )
    return as_validation(step_of_all)
