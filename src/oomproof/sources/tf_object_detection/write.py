"""A plan goes back into the pipeline.config, edited where its values stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.files.looking import is_there
from oomproof.files.replacing import replace_file
from oomproof.sources.job import Settings
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.text_file import read_text
from oomproof.sources.tf_object_detection.planned_values import find_planned_values


def write_config(config: Config, settings: Settings, target: Path) -> str:
    """Writes ``target`` so that it reads as exactly the planned values; returns what to do with it."""
    if config.path is not None and read_text(config.path) != config.text:
        raise InputError(f"{config.path} has changed since it was read, and the plan is for what it was: fit it again")
    values = find_planned_values(config, settings)
    planned = config.with_values(values)
    same = config.path is not None and is_there(target) and target.samefile(config.path)
    try:
        replace_file(target, planned.text.encode(), expected=config.text.encode() if same else None)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{target} cannot be written: {reason}; name another file, --write FILE") from error
    lines = [f"  {path}: {_describe_before(config, path)} -> {_short(planned.value(path))}" for path in values]
    return "\n".join([f"wrote {target}" + (":" if lines else ", as it was"), *lines, *_around(settings)])


def _describe_before(config: Config, path: str) -> str:
    try:
        before = config.value(path)
    except InputError:
        return "not there"
    return _short(before) if config.is_set(path) else f"{_short(before)} by default"


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _around(settings: Settings) -> list[str]:
    """What no field can say: TensorFlow must be told before the first tensor is on the GPU."""
    gpu = "tf.config.list_physical_devices('GPU')[0]"
    if limit := settings.get("memory_limit_mb"):
        config = f"[tf.config.LogicalDeviceConfiguration(memory_limit={limit})]"
        return [
            "and in model_main_tf2.py, first of all:",
            f"  tf.config.set_logical_device_configuration({gpu}, {config})",
        ]
    if settings.get("memory_growth"):
        return ["and in the environment: TF_FORCE_GPU_ALLOW_GROWTH=true"]
    return []
