"""A script that edits a pipeline.config: read as a syntax tree, never run.

>>> read_script(Path("edit.py")).notes
('edit.py:7: train_input_reader.input_height: ... does not exist: the script stops here with an AttributeError. ...',)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.script.child.notebook import without_magics
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.text_file import read_text
from oomproof.sources.tf_object_detection.script.reader import ScriptReader

_SIGNS = ("config_util", "pipeline_pb2", "TrainEvalPipelineConfig", "object_detection")


@dataclass(frozen=True)
class ScriptConfig:
    """The config as the script leaves it, None where it reads none; and what is wrong or not known, line by line."""

    config: Config | None
    notes: tuple[str, ...]
    mistakes: tuple[str, ...] = ()
    """of the notes, those at which the script stops"""
    open: Mapping[str, str] = field(default_factory=dict)
    """paths of fields that only a run decides, and what to say of each"""
    lost: str = ""
    """why the file that the config begins with is not known; empty where it is"""


def is_script(path: Path) -> bool:
    """Whether a file uses the API's config; one that cannot be read or parsed does not."""
    try:
        tree = _parse(path)
    except InputError:
        return False
    words = {getattr(node, "id", None) or getattr(node, "attr", None) for node in ast.walk(tree)}
    modules = {
        part
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in [getattr(node, "module", None) or "", *(each.name for each in node.names)]
        for part in name.split(".")
    }
    return bool((words | modules) & set(_SIGNS))


def read_script(path: Path) -> ScriptConfig:
    tree = _parse(path)
    try:
        chosen, seen = ScriptReader(path, _with_flags(tree)).follow()
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be read; give its pipeline.config instead") from None
    notes = tuple(dict.fromkeys(note for each in seen for note in each.notes))
    # Names that only usually stand for a config are a guess, on which a script that reads one is not refused.
    certain = [each for each in seen if each.known or chosen is None]
    mistakes = tuple(dict.fromkeys(note for each in certain for note in each.mistakes))
    if chosen is None:
        return ScriptConfig(None, notes, mistakes)
    return ScriptConfig(chosen.config, notes, mistakes, chosen.open, chosen.lost)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(without_magics(read_text(path)), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(f"{path}{f':{line}' if line else ''}: not Python that can be read: {error}") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{path} is nested too deeply to be read") from None


def _with_flags(tree: ast.Module) -> ast.Module:
    """With ``FLAGS.name`` as what ``flags.DEFINE_string("name", default, ...)`` says."""
    defaults: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].startswith("DEFINE_"):
            given = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
            if len(given) == 2 and given[1] is not None:
                defaults[str(given[0])] = given[1]

    class Flags(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            if isinstance(node.value, ast.Name) and node.value.id == "FLAGS" and node.attr in defaults:
                return ast.copy_location(ast.Constant(defaults[node.attr]), node)
            return self.generic_visit(node)

    changed: ast.Module = Flags().visit(tree)
    return changed
