"""Where jobs come from, one file per source. May import memory/ and trace/; frameworks only inside functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.job import Job
from oomproof.sources.keras.installed import is_model, use_backend


def open_job(text: str, overrides: Sequence[str] = (), backend: str = "", config_file: str = "") -> Job:
    """``torchvision:NAME``, ``keras:NAME``, ``keras_hub:NAME``, ``FILE.py:FUNCTION``, a Detectron2 ``FILE.yaml``, zoo
    name or training script ``FILE.py``, a saved ``FILE.keras``, ``FILE.h5`` or ``FILE.timeline``, or a memory snapshot
    ``FILE.pickle``. ``overrides`` is KEY, VALUE, KEY, VALUE ... of a Detectron2 config; ``backend`` that of Keras,
    which has to be known before a job loads it; ``config_file`` is the file that a training script merges."""
    if backend:
        use_backend(backend)
    detectron2 = _detectron2(text, overrides, config_file)
    if detectron2 is not None:
        return detectron2
    if config_file:
        raise InputError(f"--config-file {config_file} is for training scripts of Detectron2; {text} is not one")
    if overrides:
        raise InputError(
            f"'{overrides[0]}': pairs KEY VALUE after the job are for Detectron2 configs; {text} takes --set NAME=VALUE"
        )
    source, _, rest = text.partition(":")
    if source == "torchvision":
        from oomproof.sources.torchvision.job import open_torchvision

        return open_torchvision(rest)
    path, colon, function = text.rpartition(":")
    if colon and path.endswith(".py"):
        from oomproof.sources.python.job import open_python

        return open_python(Path(path), function)
    if text.endswith(".py"):
        raise InputError(f"which function of {text} makes the job? Say {text}:FUNCTION (docs/jobs.md)")
    if source in ("keras", "keras_hub") and rest:
        return _keras_by_name(source, rest)
    if text.endswith((".keras", ".h5", ".hdf5")):
        from oomproof.sources.keras.files import open_saved_model

        return open_saved_model(Path(text))
    if text.endswith((".timeline", ".pickle", ".pkl")):
        from oomproof.sources.saved.job import open_saved

        return open_saved(Path(text))
    raise InputError(
        f"'{text}' is no job: expected torchvision:NAME, keras:NAME, keras_hub:NAME, FILE.py:FUNCTION, a Detectron2 "
        "FILE.yaml, a saved FILE.keras or FILE.timeline, or a PyTorch memory snapshot FILE.pickle"
    )


def as_job(given: Any, backend: str = "") -> Job:
    """What ``oomproof.check`` and ``oomproof.fit`` are given: a text, a job, or a compiled Keras model."""
    if isinstance(given, str):
        return open_job(given, backend=backend)
    if is_model(given):
        from oomproof.sources.keras.job import KerasJob

        return KerasJob(given, name=given.name)
    if not hasattr(given, "trace"):
        raise InputError(
            f"a {type(given).__name__} is no job: expected a text such as 'torchvision:resnet50', a TorchJob, a "
            "KerasJob or a compiled Keras model"
        )
    job: Job = given
    return job


def _keras_by_name(source: str, name: str) -> Job:
    if source == "keras":
        from oomproof.sources.keras.models import open_application

        return open_application(name)
    from oomproof.sources.keras.hub import open_hub

    return open_hub(name)


def _detectron2(text: str, overrides: Sequence[str], config_file: str = "") -> Job | None:
    """The job, where the text names a config of Detectron2 or a script that makes one."""
    name = text if text.startswith("detectron2://") else text.removeprefix("detectron2:")
    if not config_file and (name.endswith((".yaml", ".yml")) or text.startswith("detectron2:")):
        from oomproof.sources.detectron2.job import open_detectron2

        return open_detectron2(name, overrides)
    if text.endswith(".py"):
        from oomproof.sources.detectron2.script.script import is_script, open_script

        return open_script(Path(text), overrides, config_file) if is_script(Path(text)) else None
    return None
