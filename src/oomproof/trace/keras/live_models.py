"""The Keras models of a process, for steps that their users wrote themselves: whose memory it is."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from oomproof.trace.keras.on_tensorflow import layers_of, watching_layers
from oomproof.trace.tensorflow.trace_step import Names


def find_models() -> list[Any]:
    """Models that share no layer, the largest first; none where Keras is not loaded or has another backend."""
    keras = sys.modules.get("keras")
    if keras is None or not hasattr(keras, "Model") or keras.backend.backend() != "tensorflow":
        return []
    # By their type: isinstance asks an object for its class, which some answer with a warning.
    every = [each for each in gc.get_objects() if issubclass(type(each), keras.Model)]
    layers = {id(model): {id(layer) for layer in layers_of(model).values()} for model in every}
    found: list[Any] = []
    taken: set[int] = set()
    for model in sorted(every, key=lambda each: -len(layers[id(each)])):
        if not layers[id(model)] & taken:
            found.append(model)
            taken |= layers[id(model)]
    return found


@contextmanager
def watching_models(scopes: dict[str, str]) -> Iterator[None]:
    """While a step is traced, notes in which name scopes the layers of all models are."""
    with ExitStack() as stack:
        for model in find_models():
            stack.enter_context(watching_layers(model, scopes))
        yield


def name_variables(scopes: dict[str, str]) -> Names:
    """(kind, owner) of the variables of all models and optimizers."""
    known: dict[int, tuple[str, str]] = {}
    for model in find_models():
        for path, layer in reversed(layers_of(model).items()):  # the innermost layer that holds it
            for variable in layer.variables:
                kind = "parameter" if variable.trainable else "buffer"
                known.setdefault(id(variable.value.handle), (kind, path))
    for optimizer in find_optimizers():
        for variable in optimizer.variables:
            known.setdefault(id(variable.value.handle), ("optimizer", "(optimizer)"))
    return Names(scopes, known)


def find_optimizers() -> list[Any]:
    keras = sys.modules.get("keras")
    kind = getattr(getattr(keras, "optimizers", None), "Optimizer", None)
    return [each for each in gc.get_objects() if issubclass(type(each), kind)] if kind is not None else []
