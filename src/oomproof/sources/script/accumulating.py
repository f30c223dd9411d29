"""Where a script that makes one update for each batch could be told to make one for several: an argument of its
library's trainer, or a line after it makes its optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oomproof.sources.script.places import Place, Written, line_starts

_ARGUMENTS = {
    "TrainingArguments": ("transformers", "gradient_accumulation_steps"),
    "Seq2SeqTrainingArguments": ("transformers", "gradient_accumulation_steps"),
    "Trainer": ("lightning", "accumulate_grad_batches"),
}
"""classes whose argument says it, with the library that they are of"""


def find_accumulation(file: str, update_at: Mapping[str, Any] | None) -> list[Written]:
    """Places in a script where nothing is said of it yet: one update for each batch. ``update_at``: where it makes the
    optimizer of its own loop, if that can be told so."""
    try:
        content = Path(file).read_bytes()
        tree = ast.parse(content)
    except (OSError, SyntaxError, ValueError):
        return []
    starts = line_starts(content)
    found = list(_of_libraries(file, tree, starts))
    if not found and update_at and str(Path(update_at["file"]).resolve()) == file:
        found += _after_optimizer(file, tree, content, starts, update_at["line"])
    return found[:1]


def _of_libraries(file: str, tree: ast.Module, starts: list[int]) -> Iterator[Written]:
    imported = {name for node in ast.walk(tree) for name in _imports(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = str(getattr(node.func, "attr", "") or getattr(node.func, "id", ""))
        library, argument = _ARGUMENTS.get(name, ("", ""))
        if not any(library and library in each for each in imported) or _says(node, argument):
            continue
        first = next(iter(sorted((*node.args, *(each.value for each in node.keywords)), key=lambda n: n.lineno)), None)
        keyword = next((each for each in node.keywords if each.value is first), None)
        if node.args or first is None or keyword is None:
            continue  # an argument by its place would have to come first
        start = starts[keyword.lineno - 1] + keyword.col_offset
        yield Written(argument, 1, Place(file, keyword.lineno, start, start, f"{argument}={{}}, "))


def _says(call: ast.Call, argument: str) -> bool:
    return any(each.arg == argument or each.arg is None for each in call.keywords)


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        yield node.module


def _after_optimizer(file: str, tree: ast.Module, content: bytes, starts: list[int], line: int) -> Iterator[Written]:
    """``optimizer = SGD(...)`` on lines of its own: the call comes after it."""
    for node in ast.walk(tree):
        is_there = isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or 0)
        if not is_there or not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        indent = content[starts[node.lineno - 1] : starts[node.lineno - 1] + node.col_offset]
        after = node.end_lineno or node.lineno
        rest = content[starts[after - 1] + (node.end_col_offset or 0) : starts[after]].strip()
        if indent.strip() or (rest and not rest.startswith(b"#")) or not isinstance(node.value, ast.Call):
            continue
        name, space = ast.unparse(node.targets[0]), indent.decode()
        ending = "\r\n" if content[starts[after - 1] : starts[after]].endswith(b"\r\n") else "\n"
        text = f"{space}import oomproof{ending}{space}oomproof.accumulate({name}, {{}}){ending}"
        yield Written("accumulation", 1, Place(file, after, starts[after], starts[after], text))
