"""The code of a notebook, cell by cell; what only IPython understands is left out."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from oomproof.errors import InputError

_MAGIC = ("%", "!", "?")


def read_notebook(path: Path) -> Iterator[tuple[str, str]]:
    """(name, source) of each code cell, in order."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found = [
            (number, "".join(cell["source"])) for number, cell in enumerate(cells, 1) if cell.get("cell_type") == "code"
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a notebook: {type(error).__name__}: {error}") from None
    for number, source in found:
        if source.lstrip().startswith("%%") and not source.lstrip().startswith(("%%time", "%%capture")):
            continue  # a cell of another language
        yield f"{path}, cell {number}", without_magics(source)


def without_magics(source: str) -> str:
    """
    >>> without_magics("%matplotlib inline\\nimport torch\\nx?")
    'pass\\nimport torch\\npass'
    """
    try:
        ast.parse(source)
        return source
    except SyntaxError:
        pass
    lines = []
    for line in source.split("\n"):
        text = line.strip()
        magic = text.startswith(_MAGIC) or text.endswith("?") or _assigns_magic(text)
        lines.append(line[: len(line) - len(line.lstrip())] + "pass" if magic else line)
    return "\n".join(lines)


def _assigns_magic(text: str) -> bool:
    _, equals, value = text.partition("=")
    return bool(equals) and value.strip().startswith(("!", "%"))
