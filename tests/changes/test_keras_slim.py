"""Narrower copies of Keras models: they fit together, keep what the model returns, and train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="narrower Keras models need TensorFlow: pip install 'oomproof[tensorflow]'")
import keras

import oomproof
from oomproof.errors import InputError

layers = keras.layers


def three_layers() -> Any:
    steps: list[Any] = [keras.Input((32, 32, 3))]
    for filters in (16, 32, 64):
        steps += [layers.Conv2D(filters, 3, padding="same", activation="relu"), layers.MaxPooling2D()]
    return keras.Sequential([*steps, layers.Flatten(), layers.Dense(20, activation="relu"), layers.Dense(10)])


def unet() -> Any:
    images = x = keras.Input((32, 32, 3))
    skips = []
    for filters in (8, 16):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(x)))
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((16, 8), reversed(skips), strict=True):
        x = layers.Concatenate()([layers.Conv2DTranspose(filters, 2, strides=2)(x), skip])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return keras.Model(images, layers.Conv2D(4, 1)(x))


def gated() -> Any:
    """A residual block with squeeze-and-excitation, a depthwise, a grouped and a shared convolution."""
    images = keras.Input((16, 16, 3))
    stem = layers.Conv2D(16, 3, padding="same")(images)
    x = layers.DepthwiseConv2D(3, padding="same")(stem)
    x = layers.GroupNormalization(4)(x)
    gate = layers.Reshape((1, 1, 16))(layers.GlobalAveragePooling2D()(x))
    gate = layers.Conv2D(16, 1, activation="sigmoid")(layers.Conv2D(4, 1, activation="relu")(gate))
    x = layers.Add()([layers.Multiply()([x, gate]), stem])
    shared = layers.Conv2D(16, 3, padding="same", groups=4)
    x = shared(shared(x))
    x = keras.ops.relu(x) + stem
    return keras.Model(images, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def nested() -> Any:
    inner = three_layers()
    body = keras.Sequential([keras.Input((32, 32, 3)), *inner.layers[:4]])
    return keras.Sequential([keras.Input((32, 32, 3)), body, layers.GlobalAveragePooling2D(), layers.Dense(3)])


@pytest.mark.parametrize("make", [three_layers, unet, gated, nested])
def test_a_narrower_copy_is_smaller_keeps_its_outputs_and_trains(make: Callable[[], Any]) -> None:
    model = make()
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    narrow = oomproof.slim(model, 0.5)
    assert narrow.count_params() < 0.5 * model.count_params()
    assert narrow.output_shape == model.output_shape
    images = np.random.default_rng(0).random((2, *model.input_shape[1:]), "float32")
    targets = np.zeros((2, *model.output_shape[1:]), "float32")
    narrow.run_eagerly = True
    before = narrow.train_on_batch(images, targets)
    assert narrow.train_on_batch(images, targets) < before


def test_every_width_is_scaled_but_the_output() -> None:
    narrow = oomproof.slim(three_layers(), 0.25)
    convolutions = [each.filters for each in narrow.layers if isinstance(each, layers.Conv2D)]
    assert convolutions == [4, 8, 16]
    assert [each.units for each in narrow.layers if isinstance(each, layers.Dense)] == [5, 10]


def test_grouped_and_joined_layers_stay_divisible() -> None:
    narrow = oomproof.slim(gated(), 0.6)  # 9.6 of 16 channels: groups of 4 make 8 of them
    assert {each.filters for each in narrow.layers if isinstance(each, layers.Conv2D)} == {2, 8}


def test_a_sum_with_the_input_keeps_its_channels() -> None:
    images = keras.Input((8, 8, 6))
    x = layers.Add()([layers.Conv2D(6, 1)(layers.Conv2D(12, 1)(images)), images])
    narrow = oomproof.slim(keras.Model(images, layers.Conv2D(2, 1)(x)), 0.5)
    assert [each.filters for each in narrow.layers if isinstance(each, layers.Conv2D)] == [6, 6, 2]


def test_a_layer_that_is_not_known_keeps_what_it_is_given() -> None:
    images = keras.Input((8, 8, 3))
    x = layers.Permute((3, 1, 2))(layers.Conv2D(10, 1)(layers.Conv2D(12, 1)(images)))
    narrow = oomproof.slim(keras.Model(images, layers.Dense(2)(layers.Flatten()(x))), 0.5)
    assert [each.filters for each in narrow.layers if isinstance(each, layers.Conv2D)] == [6, 10]


def test_what_cannot_be_narrower_is_refused() -> None:
    linear = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    with pytest.raises(InputError, match="no inner convolution"):
        oomproof.slim(linear, 0.5)
    with pytest.raises(InputError, match="above 0 and up to 1"):
        oomproof.slim(linear, 1.5)
    with pytest.raises(InputError, match=r"begins with keras\.Input"):
        oomproof.slim(keras.Sequential([layers.Dense(4), layers.Dense(2)]), 0.5)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ResNet50", "MobileNetV2", "EfficientNetB0"])
def test_halves_of_published_models_train(name: str) -> None:
    model = getattr(keras.applications, name)(weights=None, input_shape=(32, 32, 3), classes=7)
    narrow = oomproof.slim(model, 0.5)
    assert narrow.output_shape == (None, 7)
    assert narrow.count_params() < 0.35 * model.count_params()
    narrow.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy", run_eagerly=True)
    images = np.random.default_rng(0).random((2, 32, 32, 3), "float32")
    assert np.isfinite(narrow.train_on_batch(images, np.zeros(2, "int32")))
