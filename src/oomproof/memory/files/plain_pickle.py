"""Pickles of plain data, read without running anything they name.

A pickle is a program for a small machine. Before Python's own reader sees it, every opcode is checked, and only those
pass that make dicts, lists, texts, numbers, None and pairs of integers, which is all that a PyTorch snapshot has. Left
out is what can call (REDUCE, GLOBAL, BUILD ...), what asks for memory before it shows data (huge memo numbers,
BYTEARRAY8) and what nests keys (hashing a deep tuple overflows CPython's stack). Runs of opcodes of fixed length are
matched by one regular expression, so that the check goes at the speed of C.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any

NONE_TRUE_FALSE = rb"[N\x88\x89]"
INTEGER = rb"(?:K.|M..|J....|\x8a(?:\x00|\x01.|\x02..|\x03.{3}|\x04.{4}|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}|\x09.{9}))"
FLOAT = rb"G.{8}"
EMPTY_CONTAINER = rb"[}\]]"
FILL = rb"[(aesu]"
MEMO = rb"(?:\x94|h.|j.{4})"
FRAME = rb"\x95.{8}"
# The writer begins a new frame wherever one has grown to 64 KiB, be it within a pair.
PAIR = INTEGER + rb"(?:" + FRAME + rb")?" + INTEGER + rb"(?:" + FRAME + rb")?\x86"
# Possessive: a run is never tried again shorter, so no way back is kept for each of its opcodes.
RUN = re.compile(
    rb"(?:" + b"|".join((MEMO, PAIR, INTEGER, FILL, EMPTY_CONTAINER, NONE_TRUE_FALSE, FLOAT, FRAME)) + rb")++",
    re.DOTALL,
)
SHORT_TEXT, TEXT, STOP = 0x8C, 0x58, 0x2E
BYTES_A_PART = 6
"""of the file, on average, for each list, dict, pair and text: fewer would fill the memory with small objects"""


class NotPlain(Exception):
    """What was expected and what came."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise NotPlain("expected plain data; it names code to run")


def read_plain(content: bytes) -> Any:
    """The value that the pickle describes; NotPlain if it is not plain data, whole and of a believable size."""
    _check(content)
    try:
        return _Reader(io.BytesIO(content)).load()
    except NotPlain:
        raise
    except Exception as error:
        # The reader raises whatever its operations raise on a stack that is not as they need it.
        raise NotPlain(f"expected a whole pickle; found a damaged one ({type(error).__name__})") from None


def _check(content: bytes) -> None:
    if content[:1] != b"\x80" or content[1:2] not in (b"\x04", b"\x05"):
        raise NotPlain("expected a pickle of protocol 4 or 5, as torch.cuda.memory._dump_snapshot writes; found none")
    at, size, parts = 2, len(content), 0
    while at < size:
        opcode = content[at]
        if opcode == STOP:
            break
        if opcode == SHORT_TEXT:
            at += 2 + int.from_bytes(content[at + 1 : at + 2], "little")
            parts += 1
        elif opcode == TEXT:
            at += 5 + int.from_bytes(content[at + 1 : at + 5], "little")
            parts += 1
        else:
            run = RUN.match(content, at)
            if run is None:
                raise NotPlain(f"expected plain data; found the pickle opcode 0x{opcode:02x} at byte {at}")
            parts += sum(content.count(mark, at, run.end()) for mark in (b"}", b"]", b"\x86"))
            at = run.end()
        if parts > size // BYTES_A_PART + 1000:
            raise NotPlain(f"expected lists, dicts and texts with contents; found {parts} in {size} bytes")
    if at >= size:
        raise NotPlain("expected a whole pickle; it ends too early")
