"""Calls a function the moment a module was imported for the first time, before its importer sees it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch


def import_edited(edits: Mapping[str, bytes]) -> None:
    """From now on modules whose files have another content come from that, whatever caches of them there are."""
    get_code = SourceFileLoader.get_code

    def code_of(self: SourceFileLoader, fullname: str) -> Any:
        content = edits.get(str(Path(self.path).resolve()))
        if content is None:
            return get_code(self, fullname)
        return compile(content, self.path, "exec", dont_inherit=True)

    if edits:
        patch.object(SourceFileLoader, "get_code", code_of).start()


def when_imported(name: str, then: Callable[[ModuleType], None]) -> None:
    sys.meta_path.insert(0, _Watch(name, then))


class _Watch(MetaPathFinder):
    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then, self._looking = name, then, False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loaded(spec.loader, self._note_import)
        return spec

    def _note_import(self, module: ModuleType) -> None:
        """Not before it is imported: many only ask whether it could be (importlib.util.find_spec)."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then(module)


class _Loaded(Loader):
    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
