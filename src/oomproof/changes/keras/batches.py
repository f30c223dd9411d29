"""A tf.data pipeline in micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.changes.keras.applying import settings_from
from oomproof.changes.keras.pipeline import KINDS, rebuild_dataset, sizes
from oomproof.errors import InputError

NAMES = ("batch", "batch_size", "bs")


def batches(dataset: Any, settings: Any) -> Any:
    """The dataset, batched as it was, in batches of the size that ``settings`` (a Plan, a dict or a file) have. Keras
    then updates after as many of them as the plan accumulates. Sizes that they name otherwise than the dataset has
    them (``shuffle``, ``prefetch``, ``map``, ``interleave``) are changed in it."""
    chosen = settings_from(settings, with_own=True)
    size = next((chosen[name] for name in NAMES if name in chosen), None)
    if size is None:
        raise InputError("the settings name no batch size; expected one such as {'batch': 4, 'accumulate': 8}")
    if not hasattr(dataset, "rebatch"):
        raise InputError(
            f"expected a tf.data.Dataset that gives batches; got a {type(dataset).__name__}. Hand arrays to fit() with "
            f"batch_size={size}; let a PyDataset or a generator make batches of {size} by itself"
        )
    known = _elements(dataset, int(size))
    return _assert_length(_resize_buffers(dataset, settings_from(settings)).rebatch(int(size)), known, int(size))


def _resize_buffers(dataset: Any, chosen: Mapping[str, Any]) -> Any:
    present = sizes(dataset)
    named = {name: chosen[name] for name in chosen if name.partition("_")[0] in KINDS}
    return rebuild_dataset(dataset, {name: value for name, value in named.items() if value != present.get(name)})


def _elements(dataset: Any, size: int) -> int | None:
    """Images in the dataset, where its batches are whole numbers of micro-batches and their number is known."""
    import tensorflow as tf

    from oomproof.frameworks.tensorflow import input_of, read_size

    seen = dataset
    while seen is not None and read_size(seen, "batch_size") is None:
        seen = input_of(seen)
    batch = None if seen is None else tf.get_static_value(read_size(seen, "batch_size"))
    if batch is None or int(batch) % size:
        return None
    images, count = int(input_of(seen).cardinality()), int(dataset.cardinality())
    return images if images > 0 and count == -(-images // int(batch)) else None


def _assert_length(dataset: Any, images: int | None, size: int) -> Any:
    """rebatch() forgets how many batches there are, and Keras warns at the end of an epoch it does not see coming."""
    import tensorflow as tf

    if images is None:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(-(-images // size)))
