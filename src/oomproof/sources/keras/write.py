"""Writing settings back for Keras jobs: a JSON file, and the code that reads it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from oomproof.sources.job import Settings

DATASET = "dataset = ...  # your tf.data.Dataset, batched as it is today"


def write_file(
    path: Path,
    job: str,
    settings: Settings,
    code: Sequence[str],
    *,
    own: Collection[str] = (),
    device: str = "",
    changes: Sequence[str] = (),
) -> str:
    """Writes the settings and says what to paste; ``code`` makes the compiled model, and the dataset where it can.
    ``own`` are settings that are parameters of the user's code."""
    from oomproof.run.settings_file import write_settings

    write_settings(path, job, device, settings, changes, own=own)
    file = repr(str(path))
    lines = [
        *_around(settings),
        "from oomproof.run.keras import apply, batches",
        "",
        *code,
        *([] if any(line.startswith("dataset =") for line in code) else [DATASET]),
        f"model = apply(model, {file})",
        f"model.fit(batches(dataset, {file}))  # and your other arguments",
    ]
    return "\n".join([f"wrote {path}. In your training:", "", *lines, ""])


def _around(settings: Settings) -> list[str]:
    """What concerns the device, and comes before any model."""
    gpu = "tf.config.list_physical_devices('GPU')[0]"
    if settings.get("memory_limit_mb"):
        limit = f"[tf.config.LogicalDeviceConfiguration(memory_limit={settings['memory_limit_mb']})]"
        return ["import tensorflow as tf", f"tf.config.set_logical_device_configuration({gpu}, {limit})", ""]
    if settings.get("memory_growth"):
        return ["import tensorflow as tf", f"tf.config.experimental.set_memory_growth({gpu}, True)", ""]
    return []
