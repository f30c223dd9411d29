"""Keras on TensorFlow, imported when a job needs it; and what to do where it is not there."""

from __future__ import annotations

import os
from typing import Any

from oomproof.errors import InputError

BACKENDS = ("tensorflow", "jax", "torch")
_INSTEAD = {
    "jax": "it is built there once more, in a process of its own: KERAS_BACKEND=tensorflow and --set backend=jax",
    "torch": "a Keras model is a torch.nn.Module: write it as an oomproof.TorchJob (docs/keras.md)",
}


def keras_on(backend: str = "tensorflow") -> Any:
    """The module keras, on its TensorFlow backend. What runs on JAX is opened there too, and compiled elsewhere."""
    if backend == "torch":
        raise _not_forecast(backend)
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    try:
        from oomproof.trace.tensorflow.capture import tensorflow

        tensorflow()
        import keras
    except ImportError as error:
        raise InputError(
            f"Keras jobs need TensorFlow and Keras 3, which are not installed here ({error}): "
            "pip install 'oomproof[tensorflow]'"
        ) from error
    if not keras.__version__.startswith("3."):
        raise InputError(f"expected Keras 3; this is Keras {keras.__version__}: pip install 'oomproof[tensorflow]'")
    if keras.backend.backend() != "tensorflow":
        raise _not_forecast(keras.backend.backend())
    return keras


def keras_hub() -> Any:
    keras_on()
    try:
        import keras_hub as hub
    except ImportError as error:
        raise InputError(
            f"keras_hub jobs need KerasHub, which is not installed here ({error}): pip install 'oomproof[kerashub]'"
        ) from error
    return hub


def is_model(value: Any) -> bool:
    """Whether it is a Keras model; told without importing Keras."""
    return any(
        each.__name__ == "Model" and each.__module__.split(".")[0] in ("keras", "tf_keras")
        for each in type(value).__mro__
    )


def _not_forecast(backend: str) -> InputError:
    return InputError(
        f"Keras is forecast on its TensorFlow backend; on {backend}, {_INSTEAD.get(backend, 'nothing is known')}"
    )
