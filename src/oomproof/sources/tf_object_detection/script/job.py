"""A script that edits a pipeline.config, as the job that it would train."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.fields import memory_fields, require_model
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob
from oomproof.sources.tf_object_detection.script.script import ScriptConfig, is_script, read_script

_SIZE = "image_size"
_OPTIMIZER = "train_config.optimizer"
_OF_THE_MODEL = (".feature_extractor.", ".box_predictor.", ".anchor_generator.", "_anchor_generator.")
"""messages of a model that decide its memory and are no settings"""
_ALIASES = {"batch_size": "batch"}
"""settings that options of the command line give under a shorter name"""


def edits_config(path: Path) -> bool:
    """Whether there is a config in the script, or something to say about one."""
    if not is_script(path):
        return False
    try:
        found = read_script(path)
    except InputError:
        return True  # which opening it says
    return found.config is not None or bool(found.mistakes)


def open_script(path: Path, given: Collection[str]) -> ObjectDetectionJob:
    """The config as the script leaves it. ``given``: settings that the user gives. InputError where the script stops,
    or where only a run tells what decides the memory."""
    found = read_script(path)
    if found.mistakes:
        count = len(found.mistakes)
        raise InputError(f"{path} has {count} mistake{'s' * (count > 1)}: {' | '.join(found.mistakes)}")
    if found.config is None or found.lost:
        raise InputError(f"{found.lost or f'{path} reads no pipeline.config'}; give the pipeline.config itself")
    require_model(found.config)
    _require_known(found, found.config, given)
    # No place of its own: the file that the script reads is changed by the script again.
    return ObjectDetectionJob(str(path), replace(found.config, path=None), told=found.notes)


def _require_known(found: ScriptConfig, config: Config, given: Collection[str]) -> None:
    names = {**{each.path: each.name for each in memory_fields(config)}, _OPTIMIZER: "optimizer"}
    resizer = f"model.{config.which('model')}.image_resizer."
    for path, note in found.open.items():
        name = _SIZE if path.startswith(resizer) else names.get(path)
        if name and not {name, _ALIASES.get(name, name)} & set(given):
            raise InputError(f"{note}; give --set {name}=VALUE")
        if name is None and (path == "model" or any(part in path for part in _OF_THE_MODEL)):
            raise InputError(f"{note}; give the pipeline.config itself")
