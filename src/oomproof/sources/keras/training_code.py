"""The lines that train a Keras job with settings from a file, for a user to paste."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oomproof.sources.job import Settings

DATASET = "dataset = ...  # your tf.data.Dataset, batched as it is today"


def write_training_code(settings: Settings, path: Path, code: Sequence[str], changes: Sequence[str]) -> list[str]:
    """``code`` makes the compiled model, and the dataset where it can."""
    file = repr(str(path))
    return [
        *_around(settings, changes),
        "from oomproof.run.keras import apply, batches",
        "",
        *code,
        *([] if any(line.startswith("dataset =") for line in code) else [DATASET]),
        f"model = apply(model, {file})",
        f"model.fit(batches(dataset, {file}))  # and your other arguments",
    ]


def _around(settings: Settings, changes: Sequence[str]) -> list[str]:
    """What concerns the device: TensorFlow must be told before the first tensor is on it, JAX before its import."""
    growth, limit = settings.get("memory_growth"), settings.get("memory_limit_mb")
    if settings.get("backend") == "jax":
        return _around_jax(bool(growth), int(limit or 0))
    gpu = "tf.config.list_physical_devices('GPU')[0]"
    if limit:
        both = ["import os", "os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'  # set_memory_growth refuses a limit"]
        config = f"[tf.config.LogicalDeviceConfiguration(memory_limit={limit})]"
        line = f"tf.config.set_logical_device_configuration({gpu}, {config})  # instead of set_memory_growth"
        return [*(both if growth else []), "import tensorflow as tf", line, ""]
    if growth or any(change.startswith("memory_growth:") for change in changes):
        return ["import tensorflow as tf", f"tf.config.experimental.set_memory_growth({gpu}, {bool(growth)})", ""]
    return []


def _around_jax(growth: bool, limit: int) -> list[str]:
    told = ["os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'"] if growth else []
    if limit:
        told.append(f"os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = ...  # {limit} MiB as a part of the card: .9")
    return ["import os", *told, ""] if told else []
