"""Arrays in host memory: NumPy, OpenCV, PIL, pandas, std::bad_alloc, a bare MemoryError."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.amounts import SIZE, find_amount, tensor
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_pieces, join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"_?ArrayMemoryError",
    r"\bMemoryError\b",
    r"Unable to allocate [\d.]",
    r"Insufficient memory",
    r"Failed to allocate \d{1,20} bytes",
    r"bad_alloc",
    r"DecompressionBombError",
    r"ArrowMemoryError",
    r"malloc of size \d+ failed",
    r"realloc of size \d+ failed",
    r"mmap[^\n]{0,40}Cannot allocate memory",
    r": Cannot allocate memory|Errno 12\] Cannot allocate",
    r"insufficient memory for",
    r"JavaScript heap out of memory",
    r"java\.lang\.OutOfMemoryError",
    r"C error: out of memory",  # pandas
)
_REQUESTED = Pattern(
    rf"Unable to allocate {SIZE}|Failed to allocate (\d{{1,20}} bytes)|(?:malloc|realloc) of size (\d{{1,20}})"
)
_SHAPE = Pattern(r"with shape \(([\d, ]{1,120})\)(?: and data type (\S{1,30}))?")


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    if (
        re.search(r"except \(?[\w., ]*MemoryError|raise MemoryError|import ", line.text)
        or "DecompressionBombWarning" in line.text
    ):
        return None
    parts = block(lines, at, ahead=3)
    text = max((join_words(parts), join_pieces(parts)), key=lambda each: bool(_SHAPE.search(each)))
    shape = _SHAPE.search(text)
    sides = tuple(int(side) for side in re.findall(r"\d{1,18}", shape[1])) if shape else ()
    dtype = (shape[2] or "") if shape else ""
    requested = find_amount(_REQUESTED, text)
    if sides and (requested is None or requested == 0):
        requested = tensor(sides, dtype)
    return Failure(
        family="array",
        kind="opencv"
        if "Insufficient memory" in text
        else "numpy"
        if sides
        else "bomb"
        if "Bomb" in text
        else "python",
        where="host",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        requested=requested,
        shape=sides,
        dtype=dtype,
        frames=frames.before(lines, at),
    )
