"""Imports of a followed script: files beside it are followed too, everything else is a name of another module."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomproof.errors import InputError
from oomproof.files.looking import is_file
from oomproof.frameworks.detectron2 import DEFAULT_CONFIG
from oomproof.sources.detectron2.config.yaml_file import read_text
from oomproof.sources.detectron2.script import arguments, config_steps
from oomproof.sources.detectron2.script.contents import Call, Foreign, Parts, Ref, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, iterate_value, require_known

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_MOST_FILES = 20
_MOST_ABOVE = 2
_DEFAULTS = Foreign(DEFAULT_CONFIG)
FRAMEWORKS = frozenset(("detectron2", "oomproof", "fvcore", "iopath", "torch", "torchvision", "numpy", "cv2", "yaml"))


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
            for name, value in _public(reader, content):
                reader.set_name(name, value, scope)
            continue
        if isinstance(content, Parts) and alias.name in content.parts:
            value = content.parts[alias.name]
        else:
            inner = _beside(reader, f"{module}.{alias.name}".lstrip("."), node.level)
            other = Unknown(alias.name) if isinstance(content, Parts) else Foreign(f"{module}.{alias.name}".lstrip("."))
            value = other if inner is None else inner
        if value == _DEFAULTS:
            value = config_steps.defaults_of_detectron2(reader)
        reader.set_name(alias.asname or alias.name, value, scope)


def is_of_frameworks(body: list[ast.stmt]) -> bool:
    """Whether a block begins with imports of Detectron2 or what it is built on: where it is trained, they are there."""
    first = next((each for each in body if isinstance(each, (ast.Import, ast.ImportFrom))), None)
    if first is None or first is not body[0] or any(isinstance(each, ast.Raise) for each in body):
        return False
    roots = {alias.name for alias in first.names} if isinstance(first, ast.Import) else {first.module or ""}
    return any(root.partition(".")[0] in FRAMEWORKS for root in roots)


def _public(reader: Reader, content: Any) -> list[tuple[str, Any]]:
    """What ``import *`` brings: not ``__name__`` of the other module, by which a script asks whether it is run."""
    parts = content.parts if isinstance(content, Parts) else {}
    named = iterate_value(reader, parts.get("__all__"))
    return [(name, value) for name, value in parts.items() if (name in named if named else name[:1] != "_")]


ADDERS = ("sys.path.append", "sys.path.insert", "site.addsitedir")


def add_folder(reader: Reader, call: Call) -> None:
    """``sys.path.append("../lib")``: where modules are looked for as well."""
    try:
        folder = Path(str(require_known(reader, call.given[-1])))
    except (NotKnown, IndexError):
        return
    reader.folders += [folder, reader.path.parent / folder]


def _beside(reader: Reader, module: str, level: int) -> Any:
    """The module of a file near the script, followed; None where there is none. Not of frameworks: a script may lie in
    a clone of Detectron2 itself."""
    folder = Path(reader.file).parent
    for _ in range(level - 1):
        folder = folder.parent
    parts = module.split(".")
    if not level and parts[0] in FRAMEWORKS:
        return None
    near = (folder, reader.path.parent, *reader.folders)
    places = (*near, *_project_folders(reader.path, parts[0])) if not level else (folder,)
    for place in places:
        for path in (place.joinpath(*parts).with_suffix(".py"), place.joinpath(*parts, "__init__.py")):
            if parts[-1] and is_file(path):
                return _module(reader, path, module)
    return None


def _project_folders(path: Path, package: str) -> list[Path]:
    """Above ``tools/train_net.py``, where a project has its package, which is installed or on PYTHONPATH."""
    return [each for each in path.resolve().parents[1 : 1 + _MOST_ABOVE] if is_file(each / package / "__init__.py")]


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
