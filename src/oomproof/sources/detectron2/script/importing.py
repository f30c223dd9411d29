"""Imports of a followed script: files beside it are followed too, everything else is a name of another module."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomproof.errors import InputError
from oomproof.files.looking import is_file
from oomproof.sources.detectron2.config.yaml_file import read_text
from oomproof.sources.detectron2.script import arguments
from oomproof.sources.detectron2.script.contents import Foreign, Parts, Ref, Unknown

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_MOST_FILES = 20


def bind_imports(reader: Reader, node: ast.Import | ast.ImportFrom, scope: Ref) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            beside = _beside(reader, name, 0)
            reader.set_name(alias.asname or name, Foreign(name) if beside is None else beside, scope)
        return
    module = node.module or ""
    content = reader.memory.get(_beside(reader, module, node.level)) if module else None
    for alias in node.names:
        if alias.name == "*":
            for name, value in (content.parts if isinstance(content, Parts) else {}).items():
                reader.set_name(name, value, scope)
            continue
        if isinstance(content, Parts):
            value = content.parts.get(alias.name, Unknown(alias.name))
        else:
            inner = _beside(reader, f"{module}.{alias.name}".lstrip("."), node.level)
            value = Foreign(f"{module}.{alias.name}".lstrip(".")) if inner is None else inner
        reader.set_name(alias.asname or alias.name, value, scope)


def _beside(reader: Reader, module: str, level: int) -> Any:
    """The module of a file near the script, followed; None where there is none."""
    folder = Path(reader.file).parent
    for _ in range(level - 1):
        folder = folder.parent
    parts = module.split(".")
    places = (folder, reader.path.parent) if not level else (folder,)
    for place in places:
        for path in (place.joinpath(*parts).with_suffix(".py"), place.joinpath(*parts, "__init__.py")):
            if parts[-1] and is_file(path):
                return _module(reader, path, module)
    return None


def _module(reader: Reader, path: Path, name: str) -> Any:
    key = str(path.resolve())
    if key in reader.modules:
        return reader.modules[key]
    if len(reader.modules) >= _MOST_FILES:
        return None
    try:
        tree = ast.parse(read_text(path), str(path))
    except (InputError, SyntaxError, ValueError):
        return None
    reader.modules[key] = scope = reader.memory.new(Parts("scope", {"__name__": name, "__file__": str(path)}))
    reader.arguments = {**arguments.find_arguments(tree), **reader.arguments}
    file, reader.file = reader.file, str(path)
    try:
        reader.follow(tree.body, scope)
    finally:
        reader.file = file
    return scope
