"""Saved Keras models: ``FILE.keras`` and ``FILE.h5``. A file is read as data; nothing that it names is run but Keras's
own layers, unless the user names the module that holds the others."""

from __future__ import annotations

import importlib
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from oomproof.errors import DamagedFile, InputError
from oomproof.files.looking import is_file, say_why_no_file
from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import SUFFIX, Knob, Setting, Settings, TraceRequest
from oomproof.sources.keras.compiled import MaybeCompiled
from oomproof.sources.keras.installed import keras_on
from oomproof.sources.keras.job import KerasJob
from oomproof.sources.keras.uncompiled import LOSS, compile_untrained, describe_training, is_compiled
from oomproof.sources.without_training import without_training
from oomproof.trace.user_code import blaming_user_code

SUFFIXES = (".keras", ".h5", ".hdf5")
MOST_CONFIG = 64 << 20
"""bytes of a config that are read: the largest models have a few MB"""
_KNOWN = ("keras", "builtins", "keras_hub")
_FOLDERS = (
    *("layers", "models", "losses", "metrics", "optimizers", "activations", "initializers", "regularizers"),
    *("constraints", "dtype_policies", "ops"),
)
"""of keras, where what a config names without a module may come from"""
_CODE = ("Lambda", "__lambda__")
_CUSTOM = Setting(
    "custom", "", "a Python module, by name or as FILE.py, that holds the file's own layers: custom=layers.py"
)


@dataclass(frozen=True)
class SavedModel(MaybeCompiled):
    """A model in a file. Its weights are not read: a forecast needs their shapes alone."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        config = _config(self.path)
        own = (_CUSTOM,) if is_compiled(config) else (_CUSTOM, LOSS)
        if _needs_custom(config):  # what the model has is known when its layers are
            from oomproof.sources.keras.training import batch_setting, training_settings

            return (*own, batch_setting(32), *training_settings({}))
        return (*self._job("").settings, *own)

    def trace(self, request: TraceRequest) -> Timeline:
        request.progress("reading the model")
        settings = request.settings
        job = self._job(settings["custom"], settings.get("loss", "own"))
        if "loss" in settings:
            job = replace(job, assumed=(describe_training(keras_on(), job.made, settings),))
        return job.trace(request.with_settings(settings.without("custom", "loss")))

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        return self._job(settings["custom"], settings.get("loss", "own")).knobs(settings, about)

    @property
    def place(self) -> Path:
        return self.path.with_suffix(SUFFIX)

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        from oomproof.sources.keras.training_code import write_training_code

        return write_training_code(settings, path, _write_loading_code(self.path, settings["custom"]), changes)

    def _job(self, custom: str, loss: str = "own") -> KerasJob:
        if (custom, loss) not in self._jobs:
            self._jobs[custom, loss] = KerasJob(load_model(self.path, custom, loss), name=self.name)
        return self._jobs[custom, loss]

    @cached_property
    def _jobs(self) -> dict[tuple[str, str], KerasJob]:
        return {}


def _write_loading_code(path: Path, custom: str) -> list[str]:
    """Code that loads the model for training."""
    needed = _needs_custom(_config(path))
    code, objects = ["import keras"], ""
    if needed and custom:
        code.append(f"from {Path(custom).stem if custom.endswith('.py') else custom} import {', '.join(needed)}")
        objects = ", custom_objects={" + ", ".join(f"{name!r}: {name}" for name in needed) + "}"
    if path.suffix == ".keras" and is_compiled(_config(path)):
        return [*code, f"model = keras.saving.load_model({str(path)!r}{objects})"]
    # Keras 3.15 does not read losses back that it has written to HDF5 by name (mse).
    load = f"model = keras.saving.load_model({str(path)!r}, compile=False{objects})"
    return [*code, load, "model.compile(...)  # as you do it today"]


def open_saved_model(path: Path) -> SavedModel:
    if not is_file(path):
        raise InputError(f"{say_why_no_file(path)}: expected a model saved with model.save('{path.stem}.keras')")
    _config(path)
    return SavedModel(path)


def load_model(path: Path, custom: str = "", loss: str = "own") -> Any:
    """The model, built and compiled as its config says, with weights of no meaning. One that was saved for inference
    is compiled with a usual optimizer and ``loss``."""
    keras = keras_on()
    config = _config(path)
    needed = _needs_custom(config)
    objects: dict[str, Any] = {}
    if needed:
        objects = _objects(path, needed, custom)
    model = _build_model(keras, path, config, objects)
    if not isinstance(model, keras.Model):
        raise DamagedFile(
            f"{path.name} should be a saved Keras model; its config makes a {type(model).__name__}. Save it anew with "
            "model.save('model.keras')"
        )
    if not getattr(model, "compiled", False):
        if is_compiled(config):
            raise InputError(
                f"{path.name} cannot be compiled as it was: Keras {keras.__version__} does not read its "
                "compile_config; write a FILE.py:FUNCTION that compiles it (docs/keras.md)"
            )
        compile_untrained(keras, model, loss)
    return model


def _build_model(keras: Any, path: Path, config: Mapping[str, Any], objects: Mapping[str, Any]) -> Any:
    try:
        with keras.saving.custom_object_scope(dict(objects)):
            if path.suffix == ".keras":
                return keras.saving.deserialize_keras_object(dict(config), safe_mode=True)
            return _load_hdf5(keras, path, config["training"])
    # What a config of another version or a broken one raises is as various as its layers.
    except Exception as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        reason = reason[:200].rstrip(". ")
        raise InputError(
            f"{path.name} cannot be built by Keras {keras.__version__}: {reason}. It was saved by Keras "
            f"{_version(path)}; build it in a FILE.py:FUNCTION instead"
        ) from error


def _load_hdf5(keras: Any, path: Path, training: Mapping[str, Any]) -> Any:
    """From HDF5, compiled here: Keras 3.15 does not read the losses back that it has written by name (mse), and loads
    an optimizer whose variables need not be the model's. Metrics are left out; they hold a few numbers each."""
    model = keras.saving.load_model(path, compile=False, safe_mode=True)
    if training:
        optimizer = keras.optimizers.deserialize(training["optimizer_config"])
        model.compile(optimizer, _losses(keras, training["loss"]), jit_compile=False)
    return model


def _losses(keras: Any, written: Any) -> Any:
    if isinstance(written, list):
        return [_losses(keras, each) for each in written]
    if isinstance(written, dict):
        if "class_name" in written:
            return keras.losses.deserialize(written)
        return {name: _losses(keras, each) for name, each in written.items()}
    return written


# -- configs -----------------------------------------------------------------------------------------------------


def _config(path: Path) -> dict[str, Any]:
    """The model's architecture and training as JSON, read without Keras."""
    return _of_zip(path) if path.suffix == ".keras" else _of_hdf5(path)


def _of_zip(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("config.json").file_size > MOST_CONFIG:
                raise DamagedFile(f"{path} should be a saved Keras model; its config.json is larger than 64 MiB")
            text = archive.read("config.json")
    except (zipfile.BadZipFile, KeyError, OSError, RuntimeError) as error:
        raise DamagedFile(
            f"{path} should be a saved Keras model, a zip file with config.json inside; {error}. Save it anew with "
            "model.save('model.keras')"
        ) from error
    return _json(path, text)


def _of_hdf5(path: Path) -> dict[str, Any]:
    try:
        import h5py
    except ImportError:
        keras_on()  # comes with Keras, and says what to install
        raise
    try:
        with h5py.File(path, "r") as file:
            text, training = file.attrs.get("model_config"), file.attrs.get("training_config")
    except (OSError, TypeError) as error:  # TypeError: an attribute of a type that NumPy has not
        raise DamagedFile(f"{path} should be a Keras model in HDF5; it cannot be read: {error}") from error
    if text is None:
        raise InputError(
            f"{path} holds weights alone: expected a whole model, saved with model.save(...), not save_weights(...)"
        )
    return {"model": _json(path, text), "training": _json(path, training) if training else {}}


def _json(path: Path, text: Any) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:  # TypeError: an attribute that is no text
        raise DamagedFile(f"{path} should be a saved Keras model; its config is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise DamagedFile(f"{path} should be a saved Keras model; its config is a {type(content).__name__}, no object")
    return content


def _version(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            return str(json.loads(archive.read("metadata.json"))["keras_version"])
    except (zipfile.BadZipFile, KeyError, OSError, ValueError):
        return "of an unknown version"


# -- layers that are not Keras's ---------------------------------------------------------------------------------


def _needs_custom(config: Any) -> tuple[str, ...]:
    """Names of classes and functions that are not Keras's own, code that is stored as such first."""
    found = dict.fromkeys(_custom(config))
    return tuple(sorted(found, key=lambda name: name not in _CODE))


def _custom(config: Any) -> Iterator[str]:
    waiting = [config]
    while waiting:  # not by recursion: a file may be nested deeper than Python's stack
        each = waiting.pop()
        if isinstance(each, dict):
            if isinstance(each.get("class_name"), str) and "config" in each:
                yield from _foreign(each)
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _foreign(entry: Mapping[str, Any]) -> Iterator[str]:
    """The name of a class or function, where it is not Keras's own."""
    name, module = entry["class_name"], entry.get("module")
    if name == "function":
        name, module = str(entry["config"]), None if entry.get("module") == "builtins" else entry.get("module")
    if name in _CODE:
        yield name
    elif isinstance(module, str):
        if module.split(".")[0] not in _KNOWN:
            yield name
    elif not name.startswith("__") and not _of_keras(name):  # __tensor__, __numpy__ ...: values in a config
        yield name


def _of_keras(name: str) -> bool:
    keras = keras_on()
    folders = (*(getattr(keras, each) for each in _FOLDERS), keras.optimizers.schedules)
    return name in ("Functional", "Variable") or any(hasattr(folder, name) for folder in folders)


def _objects(path: Path, needed: Sequence[str], custom: str) -> dict[str, Any]:
    """The user's own layers, out of the module that they name; it is their code, and is run."""
    shown = ", ".join(name for name in needed if name not in _CODE)
    if any(name in _CODE for name in needed):
        raise InputError(
            f"{path.name} holds code (a Lambda layer), which is never run: put the layer into a class, or build the "
            "model in a FILE.py:FUNCTION"
        )
    if not custom:
        raise InputError(
            f"{path.name} needs layers or functions that are not Keras's own: {shown}. Name the module that holds "
            "them: --set custom=layers.py (its code is run)"
        )
    module = _module(custom)
    missing = [name for name in needed if not hasattr(module, name)]
    if missing:
        raise InputError(
            f"{custom} has no {', '.join(missing)}, which {path.name} needs; name the module that has them"
        )
    objects = {name: getattr(module, name) for name in needed}
    return {**objects, **{f"Custom>{name}": value for name, value in objects.items()}}


def _module(custom: str) -> Any:
    file = Path(custom)
    if custom.endswith(".py"):
        if not is_file(file):
            raise InputError(
                f"custom={custom}: {say_why_no_file(file)}; expected a Python file or the name of a module"
            )
        folder, name = str(file.resolve().parent), file.stem
    else:
        folder, name = str(Path.cwd()), custom
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with blaming_user_code(), without_training("when it is imported"):
        return importlib.import_module(name)
