"""Traces of Keras models against TensorFlow's own CPU allocator in a real step.

Three things are proved apart. With the order in which the real step ran its operations, every byte must be there: that
is the model of lifetimes. With no more than the order of this process's tables of edges, which no model can know, every
byte must be there too: that is the model of the executor. And the figure that is told without having seen anything must
be near, and its upper figure never below. Kernels' own scratch is left out on both sides: a GPU's differs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import keras
import tensorflow as tf
from keras_nets import Batch, application, conv_lstm, dense_head, retinanet, three_layers, unet
from real_tf import Measured, measure
from seen_edges import edges_as_seen

from oomproof.memory import make_forecast as forecaster
from oomproof.memory.cards.devices import find_device
from oomproof.memory.runtime import Runtime
from oomproof.trace.keras.on_tensorflow import prepare_keras
from oomproof.trace.tensorflow.order.order import order_by_executor
from oomproof.trace.tensorflow.trace_step import (
    AHEAD,
    PreparedStep,
    find_measured_order,
    lay_out_step,
    prepare_step,
    timeline_of,
)
from thorough import thorough_but

MODELS: dict[str, Callable[[], tuple[Any, Batch]]] = {
    "three layers": three_layers,
    "U-Net": unet,
    "ResNet50": lambda: application("ResNet50", 8, 160),
    "MobileNetV2": lambda: application("MobileNetV2", 4, 128),
    "EfficientNetB0": lambda: application("EfficientNetB0", 4, 96),
}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adamw": keras.optimizers.AdamW,
    "rmsprop": keras.optimizers.RMSprop,
    "adagrad": keras.optimizers.Adagrad,
    "adadelta": keras.optimizers.Adadelta,
    "adamax": keras.optimizers.Adamax,
    "nadam": keras.optimizers.Nadam,
    "ftrl": keras.optimizers.Ftrl,
    "lion": keras.optimizers.Lion,
    "adafactor": keras.optimizers.Adafactor,
    **({"lamb": keras.optimizers.Lamb} if hasattr(keras.optimizers, "Lamb") else {}),  # not in Keras 3.3
    "adam, amsgrad": lambda: keras.optimizers.Adam(amsgrad=True),
    "adam, averaged": lambda: keras.optimizers.Adam(use_ema=True),
    "adam, clipped": lambda: keras.optimizers.Adam(global_clipnorm=1.0),
}


def traced_and_real(model: Any, batch: Batch, settling: int = 1) -> tuple[PreparedStep, Measured, int]:
    """The step, what a real one took, and what was there before it: variables, batch, constants."""
    step = prepare_keras(model, batch, dialect="cpu")
    run = step.captured.function
    real = measure(lambda: run(*batch), settling)
    graph = step.graph
    constants = sum(node.outputs[0].bytes for node in graph.nodes if node.op == "Const")
    held = sum(graph.nodes[number].outputs[0].bytes for number in graph.arguments) + constants
    return step, real, held + sum(variable.bytes for variable in step.captured.variables)


def check(step: PreparedStep, real: int, order: tuple[str, ...], exactly: float = 0.002) -> float:
    """How far the expected figure is off; the rest is asserted."""
    replayed = lay_out_step(step, find_measured_order(step, order), "cpu").peak().bytes
    assert replayed == pytest.approx(real, rel=exactly)
    timeline = timeline_of(step, "cpu")
    told = forecaster.build_forecast(timeline, find_device("64GiB"), Runtime(), "job", {})
    assert told.allocated.expected == timeline.peak().bytes
    assert told.allocated.high >= real
    return told.allocated.expected / real - 1


def check_executor(step: PreparedStep, real: int, order: tuple[str, ...]) -> None:
    """All but the order within this process's tables must be foretold."""
    foretold = order_by_executor(step.graph, edges_as_seen(step.graph, order), on_gpu=False)
    assert lay_out_step(step, foretold, "cpu").peak().bytes == pytest.approx(real, rel=0.005)
    known = {node.name for node in step.graph.nodes}
    ran = [name for name in dict.fromkeys(order) if name in known]
    seen = set(ran)
    ours = [node.name for node in (step.graph.nodes[number] for number in foretold) if node.name in seen]
    # Each after the same one as in the real step: 99.6 % and more, but 91 % in MobileNetV2, where for every weight two
    # of Adam's scalars come the other way round, whatever the process.
    assert len(set(pairwise(ran)) & set(pairwise(ours))) > 0.9 * len(ran)


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(["three layers"], MODELS))
def test_models_as_the_real_allocator_has_them(name: str) -> None:
    keras.utils.set_random_seed(0)
    step, real, before = traced_and_real(*MODELS[name]())
    off = check(step, real.without_scratch + before, real.order)
    check_executor(step, real.without_scratch + before, real.order)
    assert abs(off) < 0.05


@pytest.mark.thorough
@pytest.mark.slow
def test_a_detector_holds_what_was_traced() -> None:
    """The peak of this one differs by 11 % from process to process: no figure is within 5 % of all of them."""
    pytest.importorskip("keras_hub", reason="KerasHub is not installed")
    step, real, before = traced_and_real(*retinanet())
    off = check(step, real.without_scratch + before, real.order)
    assert -0.06 < off < 0.07
    check_executor(step, real.without_scratch + before, real.order)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy: str) -> None:
    kept = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_global_policy(policy)
    try:
        model, batch = three_layers(4)
    finally:
        keras.mixed_precision.set_global_policy(kept)
    step, real, before = traced_and_real(model, batch)
    assert abs(check(step, real.without_scratch + before, real.order)) < 0.05


@pytest.mark.thorough
@pytest.mark.slow
def test_what_loops_keep_for_gradients() -> None:
    """How far turns run ahead differs from run to run: the upper figure must cover it."""
    step, real, before = traced_and_real(*conv_lstm())
    told = forecaster.build_forecast(timeline_of(step, "cpu"), find_device("64GiB"), Runtime(), "job", {})
    assert told.allocated.expected >= real.without_scratch + before


def test_turns_that_run_ahead() -> None:
    side, turns = 256, 8
    weights, state = tf.Variable(tf.ones((side, side))), tf.Variable(tf.ones((side, side)))

    @tf.function
    def run(frames: Any) -> None:
        images = tf.TensorArray(tf.float32, turns, element_shape=(side, side)).unstack(frames)

        def turn(i: Any, y: Any) -> Any:
            entered = images.read(i) @ weights  # waits for no other turn
            for _ in range(3):
                y = tf.tanh(y @ weights)
            return i + 1, y + entered

        start = (0, tf.zeros((side, side)))
        state.assign(tf.while_loop(lambda i, y: i < turns, turn, start, maximum_iterations=turns)[1])

    frames = tf.ones((turns, side, side))
    real = measure(lambda: run(frames))
    step = prepare_step(run.get_concrete_function(frames), [frames], dialect="cpu")
    known = frames.shape.num_elements() * 4 + 2 * side * side * 4
    told = timeline_of(step, "cuda").about.orders
    one_by_one = max(peak for name, peak in told.items() if AHEAD not in name)
    assert max(told.values()) >= real.without_scratch + known > one_by_one


@pytest.mark.thorough
@pytest.mark.slow
def test_accumulation() -> None:
    """The step that updates is the one to foretell: the eighth, when the second set of accumulators is given up."""
    adam = keras.optimizers.Adam
    step, real, before = traced_and_real(*dense_head(adam(gradient_accumulation_steps=4)), settling=6)
    check(step, real.without_scratch + before, real.order)
    step, real, before = traced_and_real(*three_layers(4, adam(gradient_accumulation_steps=4)), settling=6)
    assert abs(check(step, real.without_scratch + before, real.order)) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(["momentum", "adamw"], OPTIMIZERS))
def test_optimizers(name: str) -> None:
    step, real, before = traced_and_real(*dense_head(OPTIMIZERS[name]()))
    check(step, real.without_scratch + before, real.order)
