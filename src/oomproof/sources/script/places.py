"""Where a script's files say how large its batch is: constants of the script, YAML and JSON files that it has read.

What is found by name is a guess until a run with another value has shown that it counts (job.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST = 1 << 20
"""bytes of a file that is looked into"""
_ENTRY = re.compile(
    rb"""(?mx) (?: ^[ \t]*(?:-[ \t]+)? (?P<plain>[A-Za-z_][\w-]*) | "(?P<quoted>[A-Za-z_][\w-]*)" )
    [ \t]* : [ \t]* (?P<value>\d+|true|false|True|False) (?= [ \t]* (?:[,}#\r\n]|\Z) )"""
)


@dataclass(frozen=True)
class Place:
    """A number or a switch in a file."""

    file: str
    line: int
    start: int
    """bytes from the beginning of the file"""
    end: int
    text: str = "{}"
    """what is written there, the value in it"""

    @property
    def said(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Written:
    """A value that was found under a name."""

    name: str
    value: Any
    place: Place


def find_in_script(file: str) -> list[Written]:
    """Constants: ``BATCH_SIZE = 16``, ``{"batch_size": 16}``, ``DataLoader(..., batch_size=16)``, ``.batch(16)``."""
    content = _content(file)
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return []
    starts = line_starts(content)
    found = []
    for name, node in _find_named_constants(tree):
        if type(node.value) in (int, bool) and node.end_lineno == node.lineno and node.end_col_offset is not None:
            start = starts[node.lineno - 1]
            place = Place(file, node.lineno, start + node.col_offset, start + node.end_col_offset)
            found.append(Written(name, node.value, place))
    return sorted(found, key=lambda each: each.place.start)


def _find_named_constants(tree: ast.AST) -> Iterator[tuple[str, ast.Constant]]:
    for node in ast.walk(tree):
        pairs: list[tuple[Any, Any]] = []
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
        elif isinstance(node, ast.AnnAssign):
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.keyword):
            pairs = [(node.arg, node.value)]
        elif isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.arguments):
            every = [*node.posonlyargs, *node.args]
            pairs = list(zip(every[len(every) - len(node.defaults) :], node.defaults, strict=True))
            pairs += list(zip(node.kwonlyargs, node.kw_defaults, strict=True))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "batch":
            pairs = [("batch", each) for each in node.args[:1]]
        for key, value in pairs:
            name = _name_of(key)
            if name and isinstance(value, ast.Constant):
                yield name, value


def _name_of(key: Any) -> str:
    if isinstance(key, ast.Constant):
        return key.value if isinstance(key.value, str) else ""
    return str(getattr(key, "id", None) or getattr(key, "attr", None) or getattr(key, "arg", None) or key or "")


def line_starts(content: bytes) -> list[int]:
    """Where each line begins, and after them the end."""
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def find_in_settings(files: Iterable[str]) -> list[Written]:
    """Entries of YAML and JSON files, one value each."""
    found = []
    for file in files:
        content = _content(file)
        for entry in _ENTRY.finditer(content):
            text = entry["value"].decode()
            value = int(text) if text.isdigit() else text.lower() == "true"
            line = content.count(b"\n", 0, entry.start("value")) + 1
            place = Place(file, line, *entry.span("value"))
            found.append(Written((entry["plain"] or entry["quoted"]).decode(), value, place))
    return found


def edit(changes: Mapping[Place, Any]) -> dict[str, bytes]:
    """The files with other values in their places."""
    edited: dict[str, bytes] = {}
    for place in sorted(changes, key=lambda each: -each.start):  # from the end: what comes before stays where it is
        content = edited.get(place.file) or _content(place.file)
        before = content[place.start : place.end].decode()
        value = changes[place]
        text = str(value).lower() if isinstance(value, bool) and before.islower() else str(value)
        text = place.text.format(text)
        edited[place.file] = content[: place.start] + text.encode() + content[place.end :]
    return edited


def _content(file: str) -> bytes:
    path = Path(file)
    try:
        return path.read_bytes() if path.stat().st_size <= LARGEST else b""
    except OSError:
        return b""
