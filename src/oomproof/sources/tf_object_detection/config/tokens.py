"""Protobuf's text format in pieces, each with the place it stands at; blanks and comments lie between them.

The pieces are those of protobuf's own Python reader (``text_format.Tokenizer``), since the API reads its files with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oomproof.errors import InputError

_BLANKS = re.compile(r"(?:\s|#[^\n]*)*+")
_TOKEN = re.compile(
    r"""
    (?P<name>[A-Za-z_][0-9A-Za-z_+-]*)
  | (?P<number>(?:[0-9+-]|\.[0-9])[0-9A-Za-z_.+-]*)
  | (?P<string>"[^"\n\\]*(?:\\.[^"\n\\]*)*"|'[^'\n\\]*(?:\\.[^'\n\\]*)*')
  | (?P<mark>.)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is name, number, string, mark (one character) or end."""

    kind: str
    text: str
    start: int
    end: int


class Tokens:
    """The pieces of a text, one ahead. ``name`` is the text's name in errors."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.ahead = self._read(0)
        self.last_end = 0

    def take(self) -> Token:
        token = self.ahead
        self.last_end = token.end
        if token.kind != "end":
            self.ahead = self._read(token.end)
        return token

    def take_mark(self, *marks: str) -> Token | None:
        """The next piece, if it is one of ``marks``."""
        is_one = self.ahead.kind == "mark" and self.ahead.text in marks
        return self.take() if is_one else None

    def fail(self, expected: str) -> InputError:
        """That something else was expected than what comes next."""
        token = self.ahead
        if token.kind == "end":
            got = "the end of the file"
        elif token.text in ("'", '"'):
            got = "a text that is not closed on its line"
        else:
            got = f"'{shorten(token.text)}'"
        return error_at(self.text, self.name, token.start, f"expected {expected}, got {got}")

    def _read(self, at: int) -> Token:
        blanks = _BLANKS.match(self.text, at)
        at = blanks.end() if blanks else at
        found = _TOKEN.match(self.text, at)
        if found is None:
            return Token("end", "", at, at)
        return Token(str(found.lastgroup), found.group(), at, found.end())


def shorten(text: str, most: int = 40) -> str:
    """A piece of a file for an error's line: short, and with nothing that breaks the line or the terminal."""
    cut = text if len(text) <= most else f"{text[:most]}..."
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in cut)


def find_place(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1."""
    line = text.count("\n", 0, offset) + 1
    return line, offset - text.rfind("\n", 0, offset)


def error_at(text: str, name: str, offset: int, what: str) -> InputError:
    line, column = find_place(text, offset)
    return InputError(f"{name}:{line}:{column}: {what}")
