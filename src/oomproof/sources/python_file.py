"""``FILE.py:FUNCTION``: a function of the user's that returns a TorchJob. Its parameters are the job's settings."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oomproof.errors import InputError, JobError
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Progress, Setting, Settings
from oomproof.sources.torch_job import TorchJob
from oomproof.trace.user_code import blaming_user_code


@dataclass(frozen=True)
class PythonJob:
    name: str
    make: Callable[..., Any]
    parameters: tuple[Setting, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        own = {setting.name for setting in self.parameters}
        return (*self.parameters, *(s for s in self._job({}).settings if s.name not in own))

    def trace(self, settings: Settings, progress: Progress) -> Timeline:
        return self._job(settings).trace(settings, progress)

    def _job(self, settings: Settings) -> TorchJob:
        chosen = {setting.name: settings[setting.name] for setting in self.parameters if setting.name in settings}
        with blaming_user_code():
            job = self.make(**chosen)
        if not isinstance(job, TorchJob):
            raise JobError(
                f"{self.name} must return an oomproof.TorchJob; it returned a {type(job).__name__} (see docs/jobs.md)"
            )
        return replace(job, name=self.name)


def open_python(path: Path, function: str) -> PythonJob:
    if not path.is_file():
        raise InputError(f"there is no file {path}: expected a Python file with a function that returns a TorchJob")
    module = _import(path)
    make = getattr(module, function, None)
    if not callable(make):
        names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        near = difflib.get_close_matches(function, names, 3, 0.4) or names[:3]
        raise InputError(
            f"{path} has no function '{function}'"
            + (f"; it has {', '.join(near)}" if near else " (it has no functions)")
        )
    return PythonJob(f"{path.name}:{function}", make, _parameters(make, f"{path.name}:{function}"))


def _parameters(make: Callable[..., Any], name: str) -> tuple[Setting, ...]:
    parameters = inspect.signature(make).parameters.values()
    for parameter in parameters:
        if parameter.default is parameter.empty or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            raise InputError(
                f"{name}: every parameter needs a default, the job's present setting; '{parameter.name}' has none"
            )
    return tuple(Setting(p.name, p.default, f"parameter of {name}") for p in parameters)


def _import(path: Path) -> Any:
    """The user's file as a module, able to import its neighbours as it would when run."""
    spec = importlib.util.spec_from_file_location(f"oomproof_job_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[spec.name] = module
    with blaming_user_code():
        spec.loader.exec_module(module)
    return module
