"""Patterns written as a list of phrases, one thing to look for each."""

from __future__ import annotations

import re


def any_of(*phrases: str, flags: int = 0) -> re.Pattern[str]:
    """
    >>> bool(any_of("out of memory", "exit code 1.7").search("exit code 137"))
    True
    """
    return re.compile("|".join(phrases), flags)
