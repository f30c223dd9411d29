"""A training script that makes a Detectron2 config: read as a syntax tree, never run."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.config import Config, overridden
from oomproof.sources.detectron2.config.yaml_file import read_text
from oomproof.sources.detectron2.job import Detectron2Job, checked_job
from oomproof.sources.detectron2.script.reader import ScriptReader

_MAKERS = {"get_cfg", "get_config"}


def is_script(path: Path) -> bool:
    """Whether the file makes a config; a file that cannot be read or parsed makes none."""
    try:
        tree = _parsed(path)
    except InputError:
        return False
    return any(_makes_config(node) for node in ast.walk(tree))


def open_script(path: Path, overrides: Sequence[str]) -> Detectron2Job:
    """The job that the script trains, with KEY VALUE pairs over it, as over ``args.opts``."""
    return checked_job(Detectron2Job(str(path), overridden(read_script(path), overrides), path))


def read_script(path: Path) -> Config:
    """The config at the moment when the script builds its trainer or its model, as far as its syntax tells."""
    tree = _parsed(path)
    try:
        return ScriptReader(path, tree).config()
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be read; give its config as a YAML file") from None


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(read_text(path), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(f"{path}{f':{line}' if line else ''}: this is no Python that can be read: {error}") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{path} is nested too deeply to be read") from None


def _makes_config(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    if name == "get_config":  # of the model zoo; many others have a function of that name
        return isinstance(called, ast.Attribute) and ast.unparse(called.value).endswith("model_zoo")
    return name in _MAKERS
