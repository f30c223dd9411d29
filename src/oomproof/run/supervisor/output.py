"""A command's output: it goes on to ours as it comes, and its end is kept to explain how the command ended."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import IO, Any

TAIL = 4000
"""lines that are kept"""
LONGEST = 1 << 16
"""bytes that are kept of a line: the end of it"""
_AT_ONCE = 1 << 16


class Tail:
    """The last lines of a stream. What a progress bar has written over (up to its last \\r) is not kept."""

    def __init__(self, lines: deque[bytes]) -> None:
        self._lines = lines
        self._begun = b""

    def add(self, some: bytes) -> None:
        *whole, begun = (self._begun + some).split(b"\n")
        self._lines.extend(_visible(line)[-LONGEST:] for line in whole[-TAIL:])
        if len(begun) > LONGEST:
            begun = _visible(begun)[-LONGEST:]
        self._begun = begun

    def end(self) -> None:
        """The last line need not end with a new one."""
        if self._begun:
            self._lines.append(_visible(self._begun)[-LONGEST:])
            self._begun = b""


def _visible(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def pass_on(stream: IO[bytes], to: Any, lines: deque[bytes]) -> None:
    """Until the stream ends. Each piece goes on when it comes: a progress bar has no ends of lines."""
    tail = Tail(lines)
    out = getattr(to, "buffer", None)
    with stream:
        while some := os.read(stream.fileno(), _AT_ONCE):
            tail.add(some)
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                if out is not None:
                    out.write(some)
                    out.flush()
                else:
                    to.write(some.decode("utf-8", "replace"))
    tail.end()
