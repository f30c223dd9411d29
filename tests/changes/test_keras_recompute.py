"""Blocks of Keras models computed again: the same gradients, the same variables after, less memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from oomproof.changes.keras import apply
from oomproof.changes.keras.blocks import blocks_of
from oomproof.changes.keras.recompute import blocks_recomputed, recompute
from oomproof.errors import InputError
from oomproof.trace.keras.on_tensorflow import prepare_keras
from oomproof.trace.tensorflow.trace_step import find_measured_order, lay_out_step, timeline_of

sys.path.append(str(Path(__file__).parents[1] / "trace"))
from keras_nets import unet
from real_tf import measure

BLOCKS = 4
ALL = "all"


def residual(*, norm: bool = True, dropout: float = 0.0, side: int = 32) -> Any:
    keras.utils.set_random_seed(1)
    x = entry = keras.Input((side, side, 3))
    x = layers.Conv2D(16, 3, padding="same")(x)
    for number in range(BLOCKS):
        y = x
        for _ in range(2):
            y = layers.Conv2D(16, 3, padding="same")(y)
            y = layers.ReLU()(layers.BatchNormalization()(y) if norm else y)
        x = layers.Add(name=f"add{number}")([x, layers.Dropout(dropout, seed=3)(y)])
    x = layers.Dense(5)(layers.GlobalAveragePooling2D()(x))
    return compiled(keras.Model(entry, x))


def compiled(model: Any) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, jit_compile=False)
    return model


def batch(side: int = 32) -> tuple[Any, Any]:
    images = np.random.default_rng(0).random((4, side, side, 3), dtype="float32")
    return tf.constant(images), tf.constant([0, 1, 2, 3])


def gradients(model: Any, data: tuple[Any, Any]) -> list[Any]:
    """Loss and gradients of two steps in a row, and all that is not trained after them."""
    images, labels = data

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(images, labels, model(images, training=True))
        return loss, tape.gradient(loss, [each.value for each in model.trainable_variables])

    found = [each.numpy() for _ in range(2) for each in tf.nest.flatten(step())]
    return found + [each.numpy() for each in model.non_trainable_variables]


def assert_same(one: list[Any], other: list[Any]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        largest = max(1e-12, float(np.abs(theirs.astype("float64")).max(initial=0)))
        assert np.abs(mine.astype("float64") - theirs.astype("float64")).max(initial=0) <= 1e-5 * largest


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"norm": False}, {"norm": True, "dropout": 0.3}])
def test_gradients_statistics_and_draws_are_the_same(how: dict[str, Any]) -> None:
    plain = gradients(residual(**how), batch())
    assert_same(gradients(recompute(residual(**how), ALL), batch()), plain)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("make", [pytest.param("MobileNetV2", marks=pytest.mark.thorough), "unet"])
def test_real_nets_train_the_same(make: str) -> None:
    def built() -> tuple[Any, Any]:
        keras.utils.set_random_seed(1)
        if make == "unet":
            model, (images, labels) = unet(side=32, base=4)
            return model, (tf.random.stateless_uniform(images.shape, (1, 2)), labels)
        shape = {"input_shape": (32, 32, 3), "classes": 5, "alpha": 0.35}
        model = keras.applications.MobileNetV2(weights=None, classifier_activation=None, **shape)
        return compiled(model), batch()

    model, data = built()
    plain = gradients(model, data)
    other, _ = built()
    assert len(blocks_of(other)) >= 3
    assert_same(gradients(recompute(other, ALL), data), plain)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_trace_agrees_with_a_real_step_and_shows_the_saving() -> None:
    peaks = []
    for setting in ("none", ALL):
        model, data = recompute(residual(side=48), setting), batch(48)
        step = prepare_keras(model, data, dialect="cpu")
        real = measure(lambda step=step, data=data: step.captured.function(*data))
        held = sum(each.bytes for each in step.captured.variables) + sum(each.numpy().nbytes for each in data)
        seen = lay_out_step(step, find_measured_order(step, real.order), "cpu", steps=1).peak().bytes - held
        assert seen == pytest.approx(real.without_scratch, rel=0.005)
        timeline = timeline_of(step, "cpu")
        # In whatever order: a block begins when the one after it is done with.
        assert max(timeline.about.orders.values()) < 1.02 * timeline.peak().bytes
        peaks.append((real.without_scratch, timeline))
    (before, plain), (after, thrifty) = peaks
    assert after < 0.55 * before
    assert 1.2 < thrifty.work.flops.sum() / plain.work.flops.sum() < 1.35  # one forward pass more, of three


@pytest.mark.thorough
def test_only_the_named_blocks_and_only_for_a_while() -> None:
    model = residual()
    assert [block.path for block in blocks_of(model)] == [f"add{number}" for number in range(BLOCKS)]

    def convolutions() -> int:
        return sum(node.op == "Conv2D" for node in prepare_keras(model, batch()).captured.definition.node)

    plain = convolutions()
    with blocks_recomputed(model, "add0,add2"):
        assert convolutions() == plain + 3 + 2  # the first block has the stem
    assert convolutions() == plain == 1 + 2 * BLOCKS


@pytest.mark.thorough
def test_apply_takes_it_from_a_plan() -> None:
    model = apply(residual(), {"checkpoint": "add1"})
    images, labels = batch()
    history = model.fit(images, labels, epochs=1, batch_size=4, verbose=0)
    assert np.isfinite(history.history["loss"][0])


def test_blocks_that_cannot_be_repeated_are_refused() -> None:
    class Own(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x

    x = entry = keras.Input((8, 8, 3))
    for number in range(3):
        x = layers.Conv2D(4, 3, padding="same")(layers.Conv2D(4, 3, padding="same", name=f"end{number}")(x))
        x = Own()(x) if number == 1 else x
    model = compiled(keras.Model(entry, layers.Dense(2)(layers.Flatten()(x))))
    may = {block.path: block.repeatable for block in blocks_of(model)}
    assert False in may.values() and True in may.values()
    wrong = next(path for path, fine in may.items() if not fine)
    with pytest.raises(InputError, match=f"'{wrong}' ends no block .* expected all, none, or some of: "):
        recompute(model, wrong)
    with pytest.raises(InputError, match="'nowhere' ends no block"):
        recompute(model, "nowhere")
