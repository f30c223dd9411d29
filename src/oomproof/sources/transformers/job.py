"""Models of transformers by config, trained as its Trainer does by default: AdamW (fused), fp32, batches of 8."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oomproof.errors import InputError, did_you_mean
from oomproof.files.looking import is_folder, is_there
from oomproof.files.regular import read_regular
from oomproof.memory.batch_spec import MOST_OBJECTS, OBJECTS_HELP, OTHER_OBJECTS
from oomproof.sources.job import ASSUMED, Setting, Settings
from oomproof.sources.torch.job import TorchJob
from oomproof.sources.torch.named import NamedJob, batch_setting, size_setting
from oomproof.sources.transformers.names import NAMES, USUAL_SIZES
from oomproof.sources.transformers.tasks import Task, keep_accepted, tasks_of

_BATCH = 8
"""per_device_train_batch_size of TrainingArguments"""
_MOST_CONFIG = 64 << 20
"""bytes of a config.json; those of the hub have some KB"""


def open_transformers(name: str) -> NamedJob:
    _transformers()
    config = _config(name)
    tasks = tasks_of(config)
    if not tasks:
        raise InputError(
            f"transformers:{name} ({config.model_type}) has no head for detection, segmentation, classification or text"
        )
    task = tasks[0]
    names = tuple(each.name for each in tasks)
    own = [batch_setting(_BATCH), Setting("task", task.name, "what it is trained for", names)]
    if task.images:
        own.append(size_setting(_usual_size(config)))
    else:
        own.append(Setting("tokens", 512, "tokens of each text, padded to this length"))
    own.append(Setting("classes", int(getattr(config, "num_labels", 2)), "number of classes"))
    if any(each.objects for each in tasks):
        own.append(Setting("boxes", MOST_OBJECTS, OBJECTS_HELP, basis=ASSUMED, usual=OTHER_OBJECTS))
    return NamedJob(
        name=f"transformers:{name}",
        own=tuple(own),
        make=lambda settings: _pieces(config, {each.name: each for each in tasks}[settings["task"]], settings),
        code=lambda settings: _code(name, task),
        usual={"update": "fused"},
    )


def _pieces(config: Any, task: Task, settings: Settings) -> TorchJob:
    import torch

    wanted = copy.deepcopy(config)
    wanted.num_labels = settings["classes"]
    size = settings.get("image_size")
    if size is not None and isinstance(getattr(wanted, "image_size", None), int) and task.name == "images":
        wanted.image_size = max(size)

    def loss(model: Any, batch: Any) -> Any:
        return model(**keep_accepted(model, batch)).loss

    return TorchJob(
        model=lambda: getattr(_transformers(), task.auto).from_config(wanted),
        batch=lambda: task.batch(settings, wanted),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=5e-5),
    )


def _config(name: str) -> Any:
    transformers = _transformers()
    short = name.rpartition("/")[2]
    if is_there(name):
        return _local(Path(name))
    kinds = transformers.CONFIG_MAPPING
    if short in NAMES:
        kind, changes = NAMES[short]
    elif name.replace("-", "_") in kinds or name in kinds:
        kind, changes = (name if name in kinds else name.replace("-", "_")), {}
    else:
        return _read_downloaded(name)
    config = kinds[kind]()
    for key, value in changes.items():
        place, *rest = key.split(".")
        setattr(getattr(config, place) if rest else config, rest[0] if rest else place, value)
    return _without_weights(config)


def _local(path: Path) -> Any:
    file = path / "config.json" if is_folder(path) else path
    try:
        content = json.loads(read_regular(file, _MOST_CONFIG).decode())
        kind = content["model_type"]
        config = _transformers().CONFIG_MAPPING[kind].from_dict(content)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{file} is not a config of transformers: expected JSON with a known model_type; "
            f"{type(error).__name__}: {error}"
        ) from None
    return _without_weights(config)


def _read_downloaded(name: str) -> Any:
    try:
        config = _transformers().AutoConfig.from_pretrained(name, local_files_only=True)
    except Exception:  # whatever the hub's code makes of a name
        known = [*NAMES, *_transformers().CONFIG_MAPPING]
        raise InputError(
            f"transformers:{name} is not on this machine, and nothing is downloaded{did_you_mean(name, known, ';')} "
            "give a local config.json, or download the config first"
        ) from None
    return _without_weights(config)


def _without_weights(config: Any) -> Any:
    """Backbones of timm would be downloaded while the model is built."""
    for each in (config, getattr(config, "backbone_config", config)):
        if getattr(each, "use_pretrained_backbone", None):
            each.use_pretrained_backbone = False
    return config


def _usual_size(config: Any) -> tuple[int, int]:
    size = USUAL_SIZES.get(config.model_type) or getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return int(height), int(width)


def _code(name: str, task: Task) -> Sequence[str]:
    return [
        f"from transformers import {task.auto}",
        "",
        f"model = {task.auto}.from_pretrained({name!r})",
        "loss = lambda model, batch: model(**batch).loss",
    ]


def _transformers() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            "transformers: jobs need transformers, which is not installed here: pip install 'oomproof[transformers]'"
        ) from error
    transformers.logging.set_verbosity_error()
    return transformers
