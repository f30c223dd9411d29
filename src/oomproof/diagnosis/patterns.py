"""Patterns, compiled when first used: a log needs half of them, and compiling all takes longer than reading it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


class Pattern:
    """
    >>> bool(Pattern("exit code 1.7").search("exit code 137"))
    True
    """

    __slots__ = ("_compiled", "flags", "pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern, self.flags = pattern, flags
        self._compiled: re.Pattern[str] | None = None

    def compile(self) -> re.Pattern[str]:
        if self._compiled is None:
            self._compiled = re.compile(self.pattern, self.flags)
        return self._compiled

    def search(self, text: str) -> re.Match[str] | None:
        return self.compile().search(text)

    def match(self, text: str) -> re.Match[str] | None:
        return self.compile().match(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self.compile().finditer(text)

    def findall(self, text: str) -> list[Any]:
        return self.compile().findall(text)


def any_of(*phrases: str, flags: int = 0) -> Pattern:
    """One thing to look for each.

    >>> bool(any_of("out of memory", "exit code 1.7").search("exit code 137"))
    True
    """
    return Pattern("|".join(phrases), flags)
