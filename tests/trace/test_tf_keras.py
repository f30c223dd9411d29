"""What a Keras model's trace says beside sizes: whose memory it is, and what it was made of."""

from __future__ import annotations

import pytest

from oomproof.errors import InputError
from oomproof.memory.timeline import KINDS, Timeline

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import keras  # not where TensorFlow is missing
from keras_nets import LOGITS, compiled, dense_head, images, labelled, three_layers

from oomproof.trace.keras.on_tensorflow import layers_of, trace_keras

MIB = 1 << 20


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    model, batch = dense_head()
    return trace_keras(model, batch)


def total(timeline: Timeline, kind: str) -> int:
    return timeline.by_kind(timeline.peak().tick)[kind]


def test_kinds_are_those_of_the_model(timeline: Timeline) -> None:
    model, batch = dense_head()
    trace_keras(model, batch)  # builds it
    assert total(timeline, "parameter") == sum(
        4 * weight.value.shape.num_elements() for weight in model.trainable_weights
    )
    assert total(timeline, "optimizer") == pytest.approx(2 * total(timeline, "parameter"), rel=0.001)
    assert total(timeline, "input") == 16 * 64 * 64 * 3 * 4 + 16 * 4
    assert total(timeline, "activation") > 4 * MIB
    gradients = timeline.bytes[timeline.kind == KINDS.index("gradient")]
    assert gradients.max() == MIB  # that of the dense layer's weights


def test_owners_are_layers(timeline: Timeline) -> None:
    model, _ = dense_head()
    kinds = {name.rpartition("_")[0] if name[-1].isdigit() else name for name in timeline.owners}
    assert {"conv2d", "batch_normalization", "dense", "max_pooling2d"} <= kinds
    assert "(step)" in timeline.owners
    assert not [name for name in timeline.owners if "gradient_tape" in name]
    assert set(layers_of(model)) >= {layer.name for layer in model.layers}


def test_facts_for_plans(timeline: Timeline) -> None:
    about = timeline.about
    assert (about.optimizer, about.batchnorms, about.precision) == ("Adam", 2, "float32")
    assert any("jit_compile=False" in note for note in about.not_counted)


def test_layers_inside_layers_have_paths() -> None:
    inner = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(4, 3, name="first")], name="inner")
    entry = keras.Input((32, 32, 3))
    model = keras.Model(entry, keras.layers.Dense(2)(keras.layers.Flatten()(inner(entry))))
    timeline = trace_keras(compiled(model, loss=LOGITS), labelled(2, 32))
    assert "inner.first" in timeline.owners


def test_the_model_is_as_before() -> None:
    model, batch = three_layers(1)
    trace_keras(model, batch)
    assert all("call" not in vars(layer) for layer in model.layers)
    assert model(images(1, 256)).shape == (1, 10)


def test_twice_the_batch_takes_twice_the_activations() -> None:
    few, many = (trace_keras(*three_layers(batch)) for batch in (2, 4))
    assert total(many, "activation") == pytest.approx(2 * total(few, "activation"), rel=0.02)


def test_what_cannot_be_trained_is_refused() -> None:
    model, batch = three_layers(1)
    bare = keras.Sequential(model.layers)
    with pytest.raises(InputError, match="not compiled"):
        trace_keras(bare, batch)
    model.trainable = False
    with pytest.raises(InputError, match="no weight to train"):
        trace_keras(compiled(model), batch)
