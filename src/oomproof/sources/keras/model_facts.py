"""What a plan wants to know of a Keras model: whether micro-batches give the same gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oomproof.frameworks.keras import all_layers
from oomproof.memory.about import About

_MEANS = ("sum_over_batch_size", "mean")


def describe_loss(model: Any, about: About) -> About:
    """``about`` with what decides whether a batch may be cut into micro-batches."""
    return replace(
        about,
        mean_over_images=_keeps_keras_training(model) and _is_mean(getattr(model, "loss", None)),
        separable=not any(_draws(layer) for layer in _layers(model)),
    )


def _layers(model: Any) -> Iterator[Any]:
    yield from all_layers(model, itself=False)


def _draws(layer: Any) -> bool:
    """Random draws, or code that is not Keras's own and may do anything."""
    if getattr(layer, "seed_generator", None) is not None:
        return True
    return type(layer).__module__.split(".")[0] != "keras" or getattr(layer, "activity_regularizer", None) is not None


def _keeps_keras_training(model: Any) -> bool:
    import keras

    plain = keras.Model
    return all(getattr(type(model), name) is getattr(plain, name) for name in ("train_step", "compute_loss"))


def _is_mean(loss: Any) -> bool:
    if isinstance(loss, dict):
        return all(map(_is_mean, loss.values()))
    if isinstance(loss, (list, tuple)):
        return all(map(_is_mean, loss))
    # A name or a function is made a Loss by compile(), with Keras's usual reduction.
    return loss is not None and getattr(loss, "reduction", _MEANS[0]) in _MEANS
