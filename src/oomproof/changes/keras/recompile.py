"""Compiles a Keras model as another one is, with an optimizer of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from oomproof.errors import InputError
from oomproof.frameworks.keras import compile_config_of, learning_rate_of

OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"class_name": "SGD", "config": {"learning_rate": 0.01, "momentum": 0.9}},
    "adam": {"class_name": "Adam", "config": {}},
    "adamw": {"class_name": "AdamW", "config": {}},
    "rmsprop": {"class_name": "RMSprop", "config": {}},
    "adafactor": {"class_name": "Adafactor", "config": {}},
    "lion": {"class_name": "Lion", "config": {}},
}
"""Keras's optimizers with usual arguments, by the names that the setting ``optimizer`` takes"""


def compile_as(
    model: Any, other: Any, *, optimizer: str = "own", accumulate: int | None = None, jit_compile: bool = False
) -> Any:
    """Compiles ``model`` with the arguments that ``other`` was compiled with, but for the optimizer and XLA. Returns
    it."""
    given = dict(arguments(other))
    given |= {"optimizer": make_optimizer(other, optimizer, accumulate), "jit_compile": jit_compile}
    model.compile(**given)
    return model


def arguments(model: Any) -> Mapping[str, Any]:
    """What the model was compiled with, as objects."""
    kept = compile_config_of(model)
    if not getattr(model, "compiled", False) or kept is None or model.optimizer is None:
        raise InputError(
            "the Keras model is not compiled; expected one that fit() could train: call model.compile(optimizer=..., "
            "loss=...) first"
        )
    given = {name: value for name, value in kept.config.items() if value is not None}
    return {**given, "optimizer": model.optimizer}  # Keras 3.15 forgets it among these when it saves HDF5


def make_optimizer(model: Any, name: str = "own", accumulate: int | None = None) -> Any:
    """A new optimizer as the model's, or another one; ``accumulate`` micro-batches an update, or as many as it has."""
    arguments(model)
    present = inner(model.optimizer)
    steps = accumulation(model) if accumulate is None else accumulate
    if name == "own":
        kind, config = type(present), present.get_config()
        schedule = learning_rate_of(present)
        if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            config["learning_rate"] = schedule  # the object itself: a schedule of the user's has no config to go by
    else:
        chosen = OPTIMIZERS[name]
        kind, config = getattr(keras.optimizers, chosen["class_name"]), dict(chosen["config"])
    return kind.from_config({**config, "gradient_accumulation_steps": steps if steps > 1 else None})


def accumulation(model: Any) -> int:
    """Micro-batches an update, as the model is compiled."""
    return int(getattr(inner(model.optimizer), "gradient_accumulation_steps", None) or 1)


def inner(optimizer: Any) -> Any:
    """Without loss scaling, which compile() puts around it again where the precision asks for it."""
    return getattr(optimizer, "inner_optimizer", optimizer)
