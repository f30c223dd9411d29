"""A plan applied to a compiled Keras model: what it promises, on real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="plans for Keras need TensorFlow: pip install 'oomproof[tensorflow]'")
import keras
import tensorflow as tf

from oomproof.changes.keras import apply, batches
from oomproof.changes.settings_file import write_settings
from oomproof.errors import InputError

layers = keras.layers
IDENTICAL = 1e-5


def net(norm: bool = False) -> Any:
    steps = [keras.Input((12, 12, 3)), layers.Conv2D(8, 3)]
    steps += [layers.BatchNormalization()] if norm else []
    model = keras.Sequential([*steps, layers.ReLU(), layers.GlobalAveragePooling2D(), layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, metrics=["accuracy"])
    return model


def data() -> Any:
    chance = np.random.default_rng(1)
    pair = chance.random((16, 12, 12, 3), "float32"), chance.integers(0, 4, 16).astype("int32")
    return tf.data.Dataset.from_tensor_slices(pair).batch(8)


def trained(model: Any, dataset: Any) -> np.ndarray[Any, Any]:
    model.fit(dataset, verbose=0, shuffle=False)
    return np.concatenate([each.numpy().ravel() for each in model.trainable_variables])


def difference(norm: bool) -> float:
    plan = {"batch": 2, "accumulate": 4}
    plain, planned = net(norm), net(norm)
    planned.set_weights(plain.get_weights())
    after = trained(plain, data())
    return float(np.abs(trained(apply(planned, plan), batches(data(), plan)) - after).max() / np.abs(after).max())


def test_accumulated_micro_batches_give_the_same_weights() -> None:
    assert difference(norm=False) < IDENTICAL


def test_with_batch_normalisation_they_do_not() -> None:
    assert difference(norm=True) > 100 * IDENTICAL


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_a_mixed_policy_keeps_weights_outputs_and_training(policy: str) -> None:
    model = net(norm=True)
    copy = apply(model, {"precision": policy})
    assert [each.dtype_policy.name for each in copy.layers] == [policy] * 4 + ["float32"]
    assert keras.config.dtype_policy().name == "float32"
    for one, other in zip(model.get_weights(), copy.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (type(copy.optimizer).__name__ == "LossScaleOptimizer") == (policy == "mixed_float16")
    assert copy.jit_compile is False
    assert np.isfinite(copy.fit(data(), verbose=0, shuffle=False).history["accuracy"][0])


def test_the_model_that_was_given_keeps_its_optimizer_and_its_precision() -> None:
    model = net()
    before = model.optimizer
    apply(model, {"precision": "mixed_bfloat16", "optimizer": "adam"})
    assert model.optimizer is before and model.dtype_policy.name == "float32"


def test_an_optimizer_keeps_its_own_arguments_but_for_accumulation() -> None:
    model = net()
    model.compile(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 9, 0.5), momentum=0.7), "mse")
    planned = apply(model, {"accumulate": 3}).optimizer
    assert (planned.momentum, planned.gradient_accumulation_steps) == (0.7, 3)
    assert isinstance(planned._learning_rate, keras.optimizers.schedules.ExponentialDecay)


def test_a_loss_function_of_the_users_survives_a_copy() -> None:
    model = net()
    model.compile("sgd", lambda target, given: keras.ops.mean(given, axis=-1))
    copy = apply(model, {"precision": "mixed_bfloat16", "width": 0.5})
    assert np.isfinite(copy.fit(data(), verbose=0, shuffle=False).history["loss"][0])


def test_another_image_size() -> None:
    model = net()
    copy = apply(model, {"image_size": (8, 10)})
    assert copy.input_shape == (None, 8, 10, 3)
    np.testing.assert_array_equal(copy.get_weights()[0], model.get_weights()[0])


def test_settings_of_the_users_code_are_left_to_it(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_settings(file, "job", "", {"batch": 2, "width": 0.5, "accumulate": 4}, own=("width", "batch"))
    model = apply(net(), str(file))
    assert model.layers[0].filters == 8
    assert model.optimizer.gradient_accumulation_steps == 4
    assert next(iter(batches(data(), str(file))))[0].shape[0] == 2


class Own(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.last = layers.Dense(4)

    def call(self, given: Any) -> Any:
        return self.last(given)


def test_what_cannot_be_done_is_said() -> None:
    own = Own()
    own.compile("sgd", "mse")
    with pytest.raises(InputError, match="Own is a class of its own"):
        apply(own, {"precision": "mixed_bfloat16"})
    with pytest.raises(InputError, match="not compiled"):
        apply(keras.Sequential([keras.Input((4,)), layers.Dense(2)]), {"accumulate": 2})
    with pytest.raises(InputError, match=r"expected a tf\.data\.Dataset"):
        batches(np.zeros(3), {"batch": 2})
    with pytest.raises(InputError, match="name no batch size"):
        batches(data(), {})
    with pytest.raises(InputError, match="expected a Plan"):
        apply(net(), 3)
    with pytest.raises(InputError, match="precision must be one of"):
        apply(net(), {"precision": "fp16"})


def test_batches_of_a_dataset_with_smaller_buffers() -> None:
    dataset = tf.data.Dataset.range(24).shuffle(24, seed=3).batch(6).prefetch(4)
    same = batches(dataset, {"batch": 3, "shuffle": 24, "prefetch": 4})
    assert sorted(int(each) for part in same for each in part) == list(range(24))
    smaller = batches(dataset, {"batch": 3, "accumulate": 2, "shuffle": 1, "prefetch": 1})
    assert [[int(each) for each in part] for part in smaller] == [[at, at + 1, at + 2] for at in range(0, 24, 3)]
    assert int(smaller.cardinality()) == 8
    with pytest.raises(InputError, match="no shuffle with a size to set"):
        batches(tf.data.Dataset.range(4).batch(2), {"batch": 1, "shuffle": 2})
