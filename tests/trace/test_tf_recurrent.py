"""Keras's recurrent layers: cuDNN's on a GPU, loops elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import keras
import tensorflow as tf
from keras import layers
from keras_nets import compiled

from oomproof.frameworks.keras import goes_to_cudnn
from oomproof.memory import make_forecast as forecaster
from oomproof.memory.activity import HALF
from oomproof.memory.cards.devices import find_device
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch.recurrent import KEPT, NOTE
from oomproof.memory.timeline import Timeline
from oomproof.trace.keras.on_tensorflow import prepare_keras
from oomproof.trace.tensorflow.sizes.turns import turns_of
from oomproof.trace.tensorflow.trace_step import PreparedStep, timeline_of

IMAGES, UNITS, NUMBERS = 16, 64, 24
FLOAT = 4


def prepare(layer: Any, steps: int = 40, dialect: Any = "cpu", before: Any = None) -> PreparedStep:
    entry = keras.Input((steps, NUMBERS))
    sequences = entry if before is None else before(entry)
    model = compiled(keras.Model(entry, layers.Dense(4)(layer(sequences))), "sgd", "mse")
    targets = tf.zeros((IMAGES, *model.output_shape[1:]))
    return prepare_keras(model, (tf.zeros((IMAGES, steps, NUMBERS)), targets), dialect=dialect)


def reserves(timeline: Timeline) -> list[int]:
    """Bytes of what forward calls of cuDNN keep in the first of two steps, results left out."""
    calls = timeline.ops.index("CudnnRNNV3")
    found = sorted(timeline.bytes[timeline.op == calls].tolist())
    return [each for each in found if each > IMAGES * 40 * UNITS * FLOAT][::2]


@pytest.mark.parametrize(
    ("layer", "kept"),
    [
        (layers.LSTM, 7),  # four gates, the state before and the tanh of that after, the output before
        (layers.GRU, 5),
        (layers.SimpleRNN, 1),
    ],
)
def test_loops_keep_every_turn(layer: Any, kept: int) -> None:
    few, many = (timeline_of(prepare(layer(UNITS), steps), "cpu").peak().bytes for steps in (20, 40))
    assert many - few >= 20 * kept * IMAGES * UNITS * FLOAT


def test_no_data_decide_on_a_plain_loop() -> None:
    step = prepare(layers.SimpleRNN(UNITS))
    assert step.guessed == 0
    assert not step.without_bound
    forward, backward = (node for node in step.graph.nodes if node.bodies)
    assert (turns_of(step.graph, forward), turns_of(step.graph, backward)) == (40, 40)


@pytest.mark.parametrize(("layer", "cell"), [(layers.LSTM, "lstm"), (layers.GRU, "gru")])
def test_a_gpu_has_cudnn_keep_its_reserve(layer: Any, cell: str) -> None:
    step = prepare(layer(UNITS, return_sequences=True), dialect="cuda")
    assert step.guessed == 0
    timeline = timeline_of(step, "cuda")
    assert reserves(timeline) == [KEPT[cell] * IMAGES * 40 * UNITS * FLOAT]
    told = forecaster.build_forecast(timeline, find_device("8GiB"), Runtime(), "job", {})
    assert NOTE in told.notes
    assert told.allocated.high > told.allocated.expected + reserves(timeline)[0] // 2 - 1
    assert {call.split('"op":"')[1].split('"')[0] for call in timeline.calls.specs} == {
        "_cudnn_rnn", "_cudnn_rnn_backward",
    }  # fmt: skip


def test_both_directions_and_masks() -> None:
    both = timeline_of(prepare(layers.Bidirectional(layers.LSTM(UNITS)), dialect="cuda"), "cuda")
    assert reserves(both) == [5 * IMAGES * 40 * UNITS * FLOAT] * 2
    masked = timeline_of(prepare(layers.LSTM(UNITS), dialect="cuda", before=layers.Masking()), "cuda")
    assert len(reserves(masked)) == 1


def test_cudnn_computes_what_its_weights_ask_for() -> None:
    work = timeline_of(prepare(layers.GRU(UNITS), dialect="cuda"), "cuda").work
    weights = 3 * UNITS * (NUMBERS + UNITS + 2)
    assert work.form.dtype.kind == "i"
    assert HALF not in work.form
    assert sorted(work.flops.tolist())[-2:] == [2 * IMAGES * 40 * weights, 4 * IMAGES * 40 * weights]


def test_which_layers_go_to_cudnn() -> None:
    assert goes_to_cudnn(layers.LSTM(2))
    assert goes_to_cudnn(layers.GRU(2, use_cudnn=True))
    other = [
        *(layers.LSTM(2, activation="relu"), layers.LSTM(2, use_cudnn=False), layers.LSTM(2, unroll=True)),
        *(layers.GRU(2, reset_after=False), layers.SimpleRNN(2), layers.Dense(2)),
    ]
    assert not [layer for layer in other if goes_to_cudnn(layer)]
