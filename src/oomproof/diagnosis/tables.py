"""Columns of numbers under a header line, as training loops print them: by blanks, commas, tabs or bars.

>>> from oomproof.diagnosis.facts import Line
>>> texts = ("step  loss  rss (MB)", " 100  0.91   4102", " 200  0.90   4240")
>>> rows = find_rows([Line(number, text) for number, text in enumerate(texts)])
>>> rows[2]
{'step': '200', 'loss': '0.90', 'rss(MB)': '4240'}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from oomproof.diagnosis.facts import Line

MOST_COLUMNS = 40
_TELLING = re.compile(
    r"epochs?|ep|steps?|iter\w*|it|batch|\w*loss\w*|lr|time\w*"
    r"|[\w./]*(?:mem|rss|ram|alloc|gpu|cuda|reserved)[\w.()\[\]]*",
    re.IGNORECASE,
)
"""names of which a header has at least two; a sentence seldom does"""
_NAME = re.compile(r"[A-Za-z#%_][\w./()\[\]%#-]*(?: [A-Za-z][\w./()\[\]%#-]*){0,2}")
"""of up to three words, where something else than blanks is between columns"""
_BARS = str.maketrans("│┃", "||")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?\s?(?:[KMGTkmgt]i?[Bb]?|%)?", re.IGNORECASE)
_BEFORE_A_UNIT = re.compile(r"\s+(?=[(\[]\s?(?:[KMGTkmgt]i?[Bb]|%|[Bb]ytes|B)\s?[)\]])")


def find_rows(lines: Sequence[Line]) -> Mapping[int, Mapping[str, str]]:
    """Place among the lines -> column name -> what stands there."""
    found: dict[int, Mapping[str, str]] = {}
    names: list[str] = []
    delimiter: str | None = None
    for at, line in enumerate(lines):
        text = line.text[:400].translate(_BARS).strip().strip("|").strip()
        if names and text[:1].isdigit():
            cells = _cells(text, delimiter)
            if len(cells) == len(names) and sum(bool(_NUMBER.fullmatch(cell)) for cell in cells) >= len(cells) / 2:
                found[at] = dict(zip(names, cells, strict=True))
        elif text[:1].isalpha() or text[:1] in ("#", "_"):
            header, by = _header(text)
            if header:
                names, delimiter = header, by
    return found


def _header(text: str) -> tuple[list[str], str | None]:
    """(names, delimiter) where a line is nothing but names; ([], None) for any other."""
    text = _BEFORE_A_UNIT.sub("", text)
    for delimiter in (",", "\t", "|", None):
        if delimiter is not None and delimiter not in text:
            continue
        cells = _cells(text, delimiter)
        least = 2 if delimiter else 3
        if (
            least <= len(cells) <= MOST_COLUMNS
            and all(_NAME.fullmatch(cell) for cell in cells)
            and sum(bool(_TELLING.fullmatch(cell.replace(" ", "_"))) for cell in cells) >= 2
        ):
            return cells, delimiter
    return [], None


def _cells(text: str, delimiter: str | None) -> list[str]:
    return [cell.strip() for cell in text.split(delimiter, MOST_COLUMNS)]
