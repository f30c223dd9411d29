"""Run by test_keras_on_torch.py in a process of its own, since Keras keeps the backend it was loaded with. Prints one
JSON object for each model: what was foretold of its second step, and what PyTorch's CPU allocator held in a real
one."""

from __future__ import annotations

import json
import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
from real_cpu import second_step

from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import Training
from oomproof.memory.cards.devices import find_device
from oomproof.memory.settings import Settings
from oomproof.trace.keras.on_torch import pieces_of, trace_keras

layers = keras.layers
SIDE, IMAGES = 48, 4


def net(policy: str = "float32", *, accumulate: int | None = None, optimizer: str = "Adam") -> keras.Model:
    given = keras.Input((SIDE, SIDE, 3))
    out = layers.Conv2D(16, 3, activation="relu", dtype=policy)(given)
    out = layers.BatchNormalization(dtype=policy)(out)
    out = layers.Dropout(0.2, dtype=policy)(layers.Conv2D(32, 3, strides=2, padding="same", dtype=policy)(out))
    out = layers.Dense(10)(layers.GlobalAveragePooling2D(dtype=policy)(out))
    model = keras.Model(given, out)
    model.dtype_policy = keras.DTypePolicy(policy)  # compile() scales the loss by it
    step = {"class_name": optimizer, "config": {"gradient_accumulation_steps": accumulate}}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.get(step), loss, metrics=["accuracy"])
    return model


MODELS = {
    "adam": net(),
    "sgd": net(optimizer="SGD"),
    "accumulated": net(accumulate=4),
    "bfloat16": net("mixed_bfloat16"),
    "float16": net("mixed_float16"),
}

if __name__ == "__main__":
    batch = (keras.KerasTensor((IMAGES, SIDE, SIDE, 3)), keras.KerasTensor((IMAGES,), dtype="int32"))
    for name, model in MODELS.items():
        foretold = forecast_step(trace_keras(model, batch, dialect="cpu"), find_device("64GiB"), Settings())
        with pieces_of(model, batch) as pieces:
            real = second_step(pieces, Training()).peak
        told = {"name": name, "real": real, "kinds": dict(foretold.kinds), "owners": dict(foretold.owners)}
        told |= {key: getattr(foretold.allocated, key) for key in ("expected", "low", "high")}
        print("told", json.dumps(told))
    model.fit(keras.ops.zeros((4, SIDE, SIDE, 3)), keras.ops.zeros((4,)), verbose=0)  # it trains as it did before
