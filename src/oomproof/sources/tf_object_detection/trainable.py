"""Whether a training of a config can begin: its model, and the files that it names. Nothing is imported to find out."""

from __future__ import annotations

import glob
from pathlib import Path

from oomproof.errors import InputError
from oomproof.files.looking import is_file, is_folder
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.dead_fields import tensorflow_of
from oomproof.sources.tf_object_detection.fields import require_model

_RECORDS = "train_input_reader.tf_record_input_reader.input_path"
_LABELS = "train_input_reader.label_map_path"
_START = "train_config.fine_tune_checkpoint"
_PLACEHOLDER = "PATH_TO_BE_CONFIGURED"


def require_trainable(config: Config, *, begins: bool) -> None:
    """InputError for the first thing that is missing. ``begins``: there is no checkpoint to go on from."""
    model = require_model(config)
    if tensorflow_of(config) == 1:
        kind = config.value(f"model.{model}.feature_extractor.type")
        raise InputError(
            f"{config.name}: feature extractor {kind} is a slim graph of TensorFlow 1, which oomproof run does not "
            "train; expected one of the API's Keras models, whose names end with _keras. check and fit take it as it is"
        )
    paths = config.value(_RECORDS) or ()
    if not paths:
        raise InputError(f"{config.name}: {_RECORDS} is empty; expected the TFRecord files of the training")
    for path in paths:
        _require_file(config, _RECORDS, path)
    if labels := config.value(_LABELS):
        _require_file(config, _LABELS, labels)
    if begins and (start := config.value(_START)):
        _require_checkpoint(config, start)


def _require_file(config: Config, field: str, path: str) -> None:
    if "://" not in path and not glob.glob(path):  # noqa: PTH207  # any path, absolute ones too
        raise InputError(f"{config.name}: no file matches {field} {path}{_hint(path)}")


def _require_checkpoint(config: Config, start: str) -> None:
    """A checkpoint is two files and more, whose names begin with what the config says."""
    if "://" in start or is_file(f"{start}.index"):
        return
    if is_folder(start):
        reason = "is a folder; expected the path of a checkpoint in it, as in " + str(Path(start) / "ckpt-0")
    elif is_file(f"{start}.meta") or start.endswith(".ckpt"):
        reason = "is not there as a checkpoint of TensorFlow 2 (NAME.index)"
    else:
        reason = "is not there (NAME.index)"
    raise InputError(
        f"{config.name}: {_START} {start} {reason}{_hint(start)}; without it: take the field out, and training begins "
        "with random weights"
    )


def _hint(path: str) -> str:
    return ", which the zoo's configs leave for you to fill in" if _PLACEHOLDER in path else ""
