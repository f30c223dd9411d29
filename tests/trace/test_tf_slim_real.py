"""A narrower copy of a Keras model, traced, against TensorFlow's own allocator in a real step of it."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import keras
from keras_nets import three_layers
from real_tf import measure

import oomproof
from oomproof.trace.keras.on_tensorflow import prepare_keras
from oomproof.trace.tensorflow.trace_step import find_measured_order, lay_out_step, timeline_of


@pytest.mark.thorough
@pytest.mark.slow
def test_a_half_is_forecast_as_it_runs() -> None:
    keras.utils.set_random_seed(0)
    model, batch = three_layers()
    narrow = oomproof.slim(model, 0.5)
    step = prepare_keras(narrow, batch, dialect="cpu")
    run = step.captured.function
    real = measure(lambda: run(*batch), 1)
    graph = step.graph
    constants = sum(node.outputs[0].bytes for node in graph.nodes if node.op == "Const")
    inputs = sum(graph.nodes[number].outputs[0].bytes for number in graph.arguments)
    total = real.without_scratch + constants + inputs + sum(each.bytes for each in step.captured.variables)
    assert lay_out_step(step, find_measured_order(step, real.order), "cpu").peak().bytes == pytest.approx(
        total, rel=0.005
    )
    assert timeline_of(step, "cpu").peak().bytes == pytest.approx(total, rel=0.05)
