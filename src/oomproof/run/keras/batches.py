"""A tf.data pipeline in micro-batches."""

from __future__ import annotations

from typing import Any

from oomproof.errors import InputError
from oomproof.run.keras.applying import settings_from

NAMES = ("batch", "batch_size", "bs")


def batches(dataset: Any, settings: Any) -> Any:
    """The dataset, batched as it was, in batches of the size that ``settings`` (a Plan, a dict or a file) have. Keras
    then updates after as many of them as the plan accumulates."""
    chosen = settings_from(settings, with_own=True)
    size = next((chosen[name] for name in NAMES if name in chosen), None)
    if size is None:
        raise InputError("the settings name no batch size; expected one such as {'batch': 4, 'accumulate': 8}")
    if not hasattr(dataset, "rebatch"):
        raise InputError(
            f"expected a tf.data.Dataset that gives batches; got a {type(dataset).__name__}. Hand arrays to fit() with "
            f"batch_size={size}; let a PyDataset or a generator make batches of {size} by itself"
        )
    return dataset.rebatch(int(size))
