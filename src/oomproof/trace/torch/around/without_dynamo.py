"""Keeps PyTorch from loading its compiler for a trace, which has no use for it and would wait seconds.

Torchvision imports ``torch._dynamo`` for one function, and PyTorch itself to mark its own functions as not to be
compiled, optimizers and dispatch modes among them. Inside ``without_dynamo`` a stand-in takes its place. It loads the
real one at once if anything else is asked of it, so code that does compile works as ever. Nothing of it stays behind.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from oomproof.frameworks.torch import DYNAMO, DYNAMO_FOLDER, DYNAMO_MARK, forget_dynamo

_UTILS, _SOURCE, _CONFIG = (f"{DYNAMO}.{part}" for part in ("utils", "source", "config"))
_SOURCES = tuple(
    f"{kind}Source" for kind in ("Attr", "CallMethodItem", "Constant", "Ephemeral", "FloatTensor", "RandomValue")
)
"""labels of where a value comes from, which fake tensors pass about and only dynamo reads"""
_KEPT: list[ModuleType] = []
"""dynamo's settings, as the first stand-in has loaded them: to read that file takes as long as a small trace"""


@contextmanager
def without_dynamo() -> Iterator[None]:
    if DYNAMO in sys.modules:
        yield
        return
    stand_in = _StandIn()
    try:
        yield
    finally:
        stand_in.leave()


class _Later(ModuleType):
    """A module of which only some names are there; any other loads the real one."""

    def __init__(self, name: str, file: Path, load: Callable[[], None]) -> None:
        super().__init__(name)
        self.__file__ = str(file)
        self._load = load

    def __getattr__(self, name: str) -> Any:
        package = name == "__path__" and self.__name__ == DYNAMO
        if name.startswith("__") and not package:  # asked of every module by inspect and the like
            raise AttributeError(name)
        self._load()
        return getattr(importlib.import_module(self.__name__), name)


class _Label:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class _StandIn:
    """``torch._dynamo`` with what a step without compilation asks of it."""

    def __init__(self) -> None:
        self._marked: list[tuple[Any, bool]] = []
        dynamo = _Later(DYNAMO, DYNAMO_FOLDER / "__init__.py", self._load)
        utils = _Later(_UTILS, DYNAMO_FOLDER / "utils.py", self._load)
        source = _Later(_SOURCE, DYNAMO_FOLDER / "source.py", self._load)
        vars(dynamo).update(disable=self._disable, graph_break=lambda *_, **__: None, utils=utils, source=source)
        vars(utils).update(is_compile_supported=_is_compile_supported)
        vars(source).update({name: type(name, (_Label,), {}) for name in _SOURCES})
        self._modules: dict[str, ModuleType] = {DYNAMO: dynamo, _UTILS: utils, _SOURCE: source}
        sys.modules.update(self._modules)
        if not _KEPT:  # settings of fake tensors are among it; it needs no other
            _KEPT.append(_load_module(_CONFIG, DYNAMO_FOLDER / "config.py"))
        config = sys.modules[_CONFIG] = _KEPT[0]
        vars(dynamo).update(config=config)
        self._modules[_CONFIG] = config

    def leave(self) -> None:
        """Everything is as if nobody had asked for dynamo."""
        self._withdraw()
        for function, _ in self._marked:
            if vars(function).get(DYNAMO_MARK) is function:
                delattr(function, DYNAMO_MARK)

    def _withdraw(self) -> None:
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        forget_dynamo(self._modules[DYNAMO])

    def _load(self) -> None:
        """Somebody wants the real one."""
        self._withdraw()
        real = importlib.import_module(DYNAMO)
        for function, recursive in self._marked:
            if vars(function).get(DYNAMO_MARK) is function:
                setattr(function, DYNAMO_MARK, real.disable(function, recursive, wrapping=False))
        self._marked.clear()
        # PyTorch 2.14 catches exceptions while it loads this, in cycles with the frames of whoever is running: their
        # tensors would live until the next collection and be counted.
        gc.collect()

    def _disable(self, function: Any = None, recursive: bool = True, **_: Any) -> Any:
        if function is None:
            return lambda each: self._disable(each, recursive)
        if hasattr(function, "__dict__"):
            self._marked.append((function, recursive))
        return function


def _is_compile_supported(device_type: str) -> Any:
    return importlib.import_module(_UTILS).is_compile_supported(device_type)


def _load_module(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
