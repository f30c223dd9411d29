"""What a child process needs to build a Keras model again on another backend, as JSON."""

from __future__ import annotations

import sys
from typing import Any

from oomproof.errors import CannotDo
from oomproof.frameworks.keras import all_layers

_KERAS = ("keras", "keras_hub", "builtins")


def model_request(model: Any, batch: Any) -> dict[str, Any]:
    """The compiled model and its batch (TensorSpecs, in any nesting)."""
    import keras

    try:
        config = keras.saving.serialize_keras_object(model)
        training = dict(model.get_compile_config() or {})
        optimizer = keras.saving.serialize_keras_object(getattr(model.optimizer, "inner_optimizer", model.optimizer))
    # A class of the user's without get_config may raise anything.
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CannotDo(
            f"the model {model.name} ({type(model).__name__}) cannot be handed to Keras on JAX, which needs its "
            f"get_config(): {reason[:200]}"
        ) from error
    for name in ("optimizer", "jit_compile"):
        training.pop(name, None)
    return {
        "model": _unbuilt(config),
        "compile": training,
        "optimizer": optimizer,
        "batch": write_structure(batch),
        "modules": _modules(model),
    }


def write_structure(part: Any) -> list[Any]:
    """``["tensor", [shape, dtype]]``, or a tuple, list or dict of such."""
    if isinstance(part, dict):
        return ["dict", {name: write_structure(each) for name, each in part.items()}]
    if isinstance(part, (tuple, list)):
        return ["tuple" if isinstance(part, tuple) else "list", [write_structure(each) for each in part]]
    if not hasattr(part, "shape") or not hasattr(part, "dtype") or None in tuple(part.shape):
        raise CannotDo(
            "a batch for Keras on JAX must be made of plain tensors whose sides are known; it has a "
            f"{type(part).__name__}"
        )
    return ["tensor", [[int(side) for side in part.shape], getattr(part.dtype, "name", str(part.dtype))]]


def _unbuilt(config: Any) -> Any:
    """Without the shapes that layers were built with: Keras 3.15 takes a layer without a build() for built once it has
    seen them, though the layers inside are not. Calling the model builds it all."""
    if isinstance(config, dict):
        return {name: _unbuilt(each) for name, each in config.items() if name not in ("build_config", "compile_config")}
    return [_unbuilt(each) for each in config] if isinstance(config, list) else config


def _modules(model: Any) -> list[str]:
    """Files that hold classes and functions of the user's own."""
    used = [*all_layers(model), model.optimizer]
    losses = getattr(model, "loss", None)
    used += losses if isinstance(losses, (list, tuple)) else losses.values() if isinstance(losses, dict) else [losses]
    found = dict.fromkeys(
        getattr(each, "__module__", "") if callable(each) and hasattr(each, "__name__") else type(each).__module__
        for each in used
        if each is not None and not isinstance(each, str)
    )
    files = (getattr(sys.modules.get(name), "__file__", None) for name in found if name.split(".")[0] not in _KERAS)
    return [str(file) for file in files if file]
