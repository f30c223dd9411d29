"""The code of a notebook, cell by cell; what only IPython understands is left out."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from oomproof.errors import InputError

_MAGIC = ("%", "!", "?")
_MOST_PARSED = 8 << 20
"""characters that are parsed in search of such lines, which takes seconds: more is no notebook"""


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
    """The source with ``pass`` for what only IPython understands. Only lines at which Python stops are looked at: the
    ``%`` of a text in two lines and a comment that asks something are not of IPython.

    >>> without_magics("%matplotlib inline\\nimport torch\\nx?")
    'pass\\nimport torch\\npass'
    """
    lines = source.split("\n")
    for _ in range(_MOST_PARSED // (len(source) + 1) + 1):
        try:
            ast.parse("\n".join(lines))
            break
        except SyntaxError as error:
            place = (error.lineno or 0) - 1
        if 0 <= place < len(lines) and _is_magic(lines[place].strip()):
            _leave_out(lines, place)
            for other, line in enumerate(lines):  # no line of Python begins so
                if line.lstrip().startswith("!") and not line.lstrip().startswith("!="):
                    _leave_out(lines, other)
        elif 0 < place < len(lines) and _goes_on_from_comment(lines[place - 1].strip()):
            lines[place] = ""
        else:
            break
    return "\n".join(lines)


def _leave_out(lines: list[str], place: int) -> None:
    """A line, and those that it goes on in."""
    goes_on = lines[place].endswith("\\")
    lines[place] = lines[place][: len(lines[place]) - len(lines[place].lstrip())] + "pass"
    while goes_on and place + 1 < len(lines):
        place += 1
        goes_on = lines[place].endswith("\\")
        lines[place] = ""


def _goes_on_from_comment(above: str) -> bool:
    """Colab makes a comment of ``%run x.py \\`` when it exports a notebook, and leaves the line behind it as it is."""
    return above.startswith("#") and above.endswith("\\")


def _is_magic(text: str) -> bool:
    return text.startswith(_MAGIC) or text.endswith("?") or _assigns_magic(text)


def _assigns_magic(text: str) -> bool:
    _, equals, value = text.partition("=")
    return bool(equals) and value.strip().startswith(("!", "%"))
