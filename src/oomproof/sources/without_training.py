"""A user's file may be imported, and its function called, but nothing may train: that would take hours.

Frameworks are the user's to import, so they are watched as they come: what starts a training stops the import instead,
and the user is told which line it was.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

from oomproof.errors import InputError

_TRAINS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "keras": (("Model", ("fit", "train_on_batch")),),
    "tf_keras": (("Model", ("fit", "train_on_batch")),),
    "tensorflow": (("GradientTape", ("gradient", "jacobian")),),
    "torch": (("Tensor", ("backward",)), ("autograd", ("backward", "grad"))),
    "lightning.pytorch": (("Trainer", ("fit",)),),
    "pytorch_lightning": (("Trainer", ("fit",)),),
    "transformers.trainer": (("Trainer", ("train",)),),
    "ultralytics.engine.model": (("Model", ("train",)),),
    "ultralytics.engine.trainer": (("BaseTrainer", ("train",)),),
    "detectron2.engine.train_loop": (("TrainerBase", ("train",)),),
    "mmengine.runner.runner": (("Runner", ("train",)),),
}
"""module: what of it trains, by class (or part) and name"""


class _Trains(BaseException):
    """Raised in place of the training; no ``except Exception`` of the user's must catch it."""


@contextmanager
def without_training(when: str) -> Iterator[None]:
    """``when`` says at what the user's code would have trained: «when it is imported»."""
    watcher = _Watcher()
    sys.meta_path.insert(0, watcher)
    try:
        for name in _TRAINS:
            if name in sys.modules:
                watcher.watch(sys.modules[name])
        yield
    except _Trains as stopped:
        raise InputError(
            f"{stopped} trains {when}, which a forecast must not: put the training under "
            'if __name__ == "__main__": (or into another function), and let FILE.py:FUNCTION only build the model '
            "and return a TorchJob, a KerasJob or a compiled Keras model (docs/jobs.md); or give the script as it is, "
            "which is then stopped after its second step: oomproof check ... -- python FILE.py"
        ) from None
    finally:
        sys.meta_path.remove(watcher)
        watcher.stop()


class _Watcher(MetaPathFinder):
    """Watches what is loaded already, and what is imported from now on."""

    def __init__(self) -> None:
        self._patches = ExitStack()
        self._looking: set[str] = set()

    def watch(self, module: ModuleType) -> None:
        for owner, methods in _TRAINS[module.__name__]:
            part = getattr(module, owner, None)
            for method in methods:
                home = next((each for each in getattr(part, "__mro__", (part,)) if method in vars(each)), None)
                if part is not None and home is not None:
                    self._patches.enter_context(patch.object(home, method, _make_stop(f"{owner}.{method}")))

    def stop(self) -> None:
        self._patches.close()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _TRAINS or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _WatchedLoader(spec.loader, self)
        return spec


class _WatchedLoader(Loader):
    """Loads a module as its own loader does; then what trains in it is watched."""

    def __init__(self, loader: Loader, watcher: _Watcher) -> None:
        self._loader, self._watcher = loader, watcher

    def __getattr__(self, name: str) -> Any:  # is_package, get_source, get_data and the like
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._watcher.watch(module)


def _make_stop(name: str) -> Any:
    def train(*_: Any, **__: Any) -> Any:
        here = inspect.currentframe()
        raise _Trains(f"{_users_line(here and here.f_back)} ({name})")

    return train


def _users_line(frame: FrameType | None) -> str:
    """The innermost line that is not a library's."""
    while frame is not None and frame.f_back is not None and "site-packages" in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "this file"
