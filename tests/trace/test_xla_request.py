"""What the child is told of a model, and what it builds from that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oomproof.errors import InputError

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf
from keras import layers

from oomproof.trace.xla.child import _model, structure
from oomproof.trace.xla.request import model_request, write_structure


class Twice(layers.Layer):  # type: ignore[misc]  # Keras has no types
    def __init__(self, units: int, **given: Any) -> None:
        super().__init__(**given)
        self.units = units
        self.inner = [layers.Dense(units), layers.Dense(units)]

    def call(self, x: Any) -> Any:
        return self.inner[1](self.inner[0](x))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


class Closed(layers.Layer):  # type: ignore[misc]  # Keras has no types
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def call(self, x: Any) -> Any:
        return self.inner(x)


def half_error(truth: Any, guess: Any) -> Any:
    return keras.ops.mean(keras.ops.square(truth - guess)) / 2


def built(request: dict[str, Any]) -> Any:
    return _model(keras, json.loads(json.dumps(request)))


def test_a_model_with_layers_and_losses_of_the_users_own_is_built_again() -> None:
    model = keras.Sequential([keras.Input((4,)), Twice(3), layers.Dense(2, dtype="mixed_bfloat16")])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), half_error, metrics=["mae"])
    request = model_request(model, (tf.TensorSpec([8, 4]), tf.TensorSpec([8, 2])))
    assert request["modules"] == [__file__]
    again = built(request)
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in model.weights]
    assert type(again.layers[0]).__name__ == "Twice"
    assert again.layers[1].dtype_policy.name == "mixed_bfloat16"
    assert again.optimizer.momentum == 0.5
    assert float(again.loss(1.0, 3.0)) == pytest.approx(2.0)


def test_an_optimizer_that_was_put_in_later_is_the_one_that_counts() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    model.compile("adam", "mse", jit_compile=False)
    model.optimizer = keras.optimizers.SGD(gradient_accumulation_steps=4)
    again = built(model_request(model, (tf.TensorSpec([8, 4]), tf.TensorSpec([8, 2]))))
    assert type(again.optimizer).__name__ == "SGD"
    assert again.optimizer.gradient_accumulation_steps == 4
    assert again.jit_compile is True


def test_a_layer_that_cannot_be_described_is_refused_in_one_line() -> None:
    model = keras.Sequential([keras.Input((4,)), Closed(layers.Dense(2))])
    model.compile("sgd", "mse")
    with pytest.raises(InputError, match=r"cannot be handed to Keras on JAX, which needs its get_config\(\)") as told:
        model_request(model, (tf.TensorSpec([8, 4]), tf.TensorSpec([8, 2])))
    assert "\n" not in str(told.value)


def test_batches_keep_their_nesting() -> None:
    batch = ({"image": tf.TensorSpec([2, 4]), "sizes": [tf.TensorSpec([2], tf.int32)]}, tf.TensorSpec([2], tf.bool))
    written = json.loads(json.dumps(write_structure(batch)))
    again = structure(written, lambda shape, dtype: (shape, dtype))
    assert again == ({"image": ((2, 4), "float32"), "sizes": [((2,), "int32")]}, ((2,), "bool"))
    with pytest.raises(InputError, match="plain tensors whose sides are known; it has a RaggedTensorSpec"):
        write_structure((tf.RaggedTensorSpec([2, None]),))
