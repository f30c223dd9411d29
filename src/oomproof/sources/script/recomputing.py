"""Tells a script's model to compute modules again in backward: two lines of its code, before it makes its optimizer.

import oomproof
oomproof.recompute(model, "layer1,layer2:4")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomproof.errors import CannotDo
from oomproof.files.looking import is_file
from oomproof.sources.job import Knob, Option, Setting

NONE = "none"
SETTING = Setting("checkpoint", NONE, "modules that are computed again in backward, PATH,PATH:N; none")
_WHY = "activations of these modules are computed again in backward: two lines of the script"


@dataclass(frozen=True)
class ModelAt:
    """A line at which the script's code has a name for its model, before the model trains."""

    file: str
    line: int
    name: str
    without: str
    """what modules' paths begin with in the trace, and not under that name"""
    within: str
    """and the other way round"""

    def insert(self, content: bytes, setting: str) -> bytes:
        """The file with the lines for a ``checkpoint`` setting."""
        text = content.decode()
        lines = text.splitlines(keepends=True)
        ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
        tree = ast.parse(text)
        before = _statement_at(tree, self.line, lines)
        if before is None:
            raise CannotDo(f"checkpoint: no line of {Path(self.file).name} can be put before line {self.line}")
        indent = lines[before - 1][: len(lines[before - 1]) - len(lines[before - 1].lstrip())]
        call = f'{indent}oomproof.recompute({self.name}, "{self.paths_in(setting)}"){ending}'
        added = {before: call}
        if not _imports_oomproof(tree):
            at = _after_imports(tree)
            added[at] = f"import oomproof{ending}" + added.get(at, "")
        return "".join(added.get(number, "") + line for number, line in enumerate(lines, 1)).encode()

    def paths_in(self, setting: str) -> str:
        """The setting with the paths that modules have under the model's name here."""
        if "," not in setting and setting in ("nonreentrant", "reentrant"):
            return setting
        found = []
        for each in setting.split(","):
            path = each.strip()
            if not path.startswith(self.without):
                raise CannotDo(f"checkpoint: {path.partition(':')[0]} is not a part of {self.name}")
            found.append(self.within + path.removeprefix(self.without))
        return ",".join(found)


def read_model_at(told: Mapping[str, Any] | None) -> ModelAt | None:
    """From what a run of the script has told; None where it told of no such line, or of one that cannot be changed."""
    if not told or not is_file(told["file"]):
        return None
    at = ModelAt(**{**told, "file": str(Path(told["file"]).resolve())})
    try:
        content = Path(at.file).read_bytes()
        ast.parse(at.insert(content, f"{at.without}x"))
    except (CannotDo, SyntaxError, ValueError, OSError):
        return None
    return at


def checkpoint_knob(at: ModelAt | None, settings: Mapping[str, Any]) -> tuple[Knob, ...]:
    """Its further options are found by the search: which modules, and how many images at a time."""
    if at is None or settings.get("checkpoint") != NONE:
        return ()
    return (Knob("checkpoint", (Option(NONE, {"checkpoint": NONE}),), "identical", _WHY),)


def _statement_at(tree: ast.Module, line: int, lines: list[str]) -> int | None:
    """The first line of the innermost statement around a line which has lines of its own."""
    found = None
    for node in _around(tree, line):
        first = node.lineno
        alone = not lines[first - 1].encode()[: node.col_offset].strip()
        if alone and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found = first
    return found


def _around(node: ast.AST, line: int) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        inside = getattr(child, "lineno", line + 1) <= line <= (getattr(child, "end_lineno", 0) or 0)
        if isinstance(child, ast.stmt) and inside:
            yield child
        if inside or isinstance(child, (ast.ExceptHandler, ast.match_case)):
            yield from _around(child, line)


def _imports_oomproof(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Import) and any(each.name == "oomproof" and not each.asname for each in node.names)
        for node in tree.body
    )


def _after_imports(tree: ast.Module) -> int:
    """The line after the imports with which a file begins."""
    at = 1
    for node in tree.body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not text and not isinstance(node, (ast.Import, ast.ImportFrom)):
            break
        at = (node.end_lineno or node.lineno) + 1
    return at
