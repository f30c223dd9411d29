"""Keras on a backend, imported when a job needs it; and what to do where it is not there."""

from __future__ import annotations

import os
import sys
from typing import Any

from oomproof.errors import InputError
from oomproof.frameworks.side_by_side import before_torch

BACKENDS = ("tensorflow", "jax", "torch")
_INSTEAD = {
    "jax": "it is built there once more, in a process of its own: KERAS_BACKEND=tensorflow and --set backend=jax",
}


def use_backend(name: str) -> None:
    """Says which backend Keras is to have. It reads that once, when it is imported. What runs on JAX is opened on
    TensorFlow, and compiled in a process of its own."""
    if name in BACKENDS and "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "tensorflow" if name == "jax" else name


def backend_now() -> str:
    """That Keras has; where it is not imported yet, that it will have."""
    if "keras" in sys.modules:
        return str(sys.modules["keras"].backend.backend())
    return os.environ.get("KERAS_BACKEND") or "tensorflow"


def keras_on(backend: str = "") -> Any:
    """The module keras, on ``backend`` or on the one it has; what runs on JAX is opened on TensorFlow."""
    wanted = "tensorflow" if backend == "jax" else backend or backend_now()
    if wanted not in _NEEDS:
        raise _not_forecast(wanted)
    use_backend(wanted)
    needs, extra = _NEEDS[wanted]
    try:
        _load(wanted)
        import keras
    except ImportError as error:
        raise InputError(
            f"Keras jobs on {wanted} need {needs} and Keras 3, which are not installed here ({error}): {extra}"
        ) from error
    if not keras.__version__.startswith("3."):
        raise InputError(f"expected Keras 3; this is Keras {keras.__version__}: pip install 'keras>=3.12'")
    if keras.backend.backend() != wanted:
        raise InputError(
            f"backend={wanted} was asked for, but Keras is loaded with {keras.backend.backend()}, which it keeps as "
            f"long as the program runs: set KERAS_BACKEND={wanted} in the environment before Keras is imported"
        )
    return keras


_NEEDS = {
    "tensorflow": ("TensorFlow", "pip install 'oomproof[tensorflow]'; KERAS_BACKEND=torch forecasts Keras on PyTorch"),
    "torch": ("PyTorch", "pip install 'oomproof[torch]' keras"),
}
"""backends that are forecast, and what to install for them"""


def _load(backend: str) -> None:
    """What is below Keras, without greetings, and so that it gets on with what else is loaded."""
    if backend == "tensorflow":
        from oomproof.trace.tensorflow.graph.capture import tensorflow

        tensorflow()
    else:
        before_torch()


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
        f"Keras jobs are opened on TensorFlow or PyTorch; on {backend}, {_INSTEAD.get(backend, 'nothing is known')}"
    )
