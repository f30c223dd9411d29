"""A message that goes over several lines: put together again, however it was wrapped."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.diagnosis.facts import Line
from oomproof.diagnosis.patterns import Pattern

AHEAD = 14
GAP = 3
"""line numbers that may be missing within one message"""
NEARLY_FULL = 60
"""characters of a line behind which the rest of a sentence may stand"""
_NEXT = Pattern(r'Traceback \(most recent|^\s*File "|^During handling of|^Epoch|^\s*$')
LONGEST_QUOTE = 480


def block(lines: Sequence[Line], at: int, stop: Pattern | None = None, ahead: int = AHEAD) -> list[str]:
    """The line and those behind it that the same process printed, up to the next message."""
    first = lines[at]
    found = [first.text]
    number = first.number
    for line in lines[at + 1 : at + 1 + ahead]:
        # A terminal that wraps puts the rank before the first piece only.
        wrapped = not line.rank and len(found[-1]) >= NEARLY_FULL
        if line.rank != first.rank and not wrapped:
            continue
        if line.number - number > GAP or _NEXT.search(line.text) or (stop is not None and stop.search(line.text)):
            break
        found.append(line.text)
        number = line.number
    return found


def join_words(parts: Sequence[str]) -> str:
    """As one line: wrapped at words."""
    return " ".join(part.strip() for part in parts)


def join_pieces(parts: Sequence[str]) -> str:
    """As one line: cut anywhere, as a terminal of fixed width does."""
    return "".join(parts)


def quote(line: Line) -> str:
    text = " ".join(line.text.split())
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 3] + "..."
