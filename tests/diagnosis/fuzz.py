"""Logs that no program wrote: pieces of the corpus cut, mixed, repeated and damaged, and plain noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
LONGEST = 20_000
ODD = (
    b"\x00",
    b"\xff\xfe",
    b"\x1b[",
    b"\r",
    b"\n\n",
    b"9" * 30,
    b"-1",
    b"(" * 50,
    b'File "',
    b"[rank0]: ",
    b"\xf0\x9f",
    b"GiB",
    b"{",
    b"|",
)


def logs(count: int, seed: int = 0) -> Iterator[bytes]:
    """``count`` of them, the same for the same seed."""
    draw = random.Random(seed)
    sources = [path.read_bytes() for path in sorted(CORPUS.rglob("*.log"))]
    for _ in range(count):
        data = draw.choice(sources)
        for _ in range(draw.randrange(1, 6)):
            data = draw.choice(CHANGES)(draw, data, sources)
        yield data[:LONGEST]


def _bytes(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randrange(1, 20)):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _cut(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    first, last = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
    return data[first:last]


def _spliced(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    other = draw.choice(sources)
    return data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]


def _shuffled(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    draw.shuffle(lines)
    return b"\n".join(lines)


def _repeated(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join([*lines, *([draw.choice(lines)] * draw.randrange(1, 200))])


def _odd(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(ODD) * draw.randrange(1, 40) + data[at:]


def _numbers(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    """Every digit another one: sums that do not come out."""
    return bytes(draw.choice(b"0123456789") if 48 <= byte <= 57 and draw.random() < 0.3 else byte for byte in data)


def _blanks(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    """Blanks, commas and dots where there are others, or none: numbers that are two, or no number."""
    return bytes(draw.choice(b" ,.-\t") if byte in b" ,.()[]" and draw.random() < 0.2 else byte for byte in data)


def _one_line(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    return data.replace(b"\n", draw.choice((b" ", b"", b"\r", b"\\n")))


def _noise(draw: random.Random, data: bytes, sources: Sequence[bytes]) -> bytes:
    return draw.randbytes(draw.randrange(2000))


CHANGES: Sequence[Callable[[random.Random, bytes, Sequence[bytes]], bytes]] = (
    _bytes,
    _cut,
    _spliced,
    _shuffled,
    _repeated,
    _odd,
    _numbers,
    _blanks,
    _one_line,
    _noise,
)
