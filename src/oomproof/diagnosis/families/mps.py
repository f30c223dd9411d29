"""PyTorch on Apple GPUs. Older versions write GB and mean GiB."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.amounts import SIZE, find_amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_pieces, join_words, quote
from oomproof.diagnosis.patterns import Pattern

TRIGGER = Pattern(
    r"MPS backend out of memory|MPS allocated:|Invalid buffer size: \d|kIOGPUCommandBufferCallbackErrorOutOfMemory"
)
_ALLOCATED = Pattern(rf"MPS allocated: {SIZE}")
_OTHER = Pattern(rf"other allocations: {SIZE}")
_MOST = Pattern(rf"max allowed: {SIZE}")
_REQUESTED = Pattern(rf"Tried to allocate {SIZE}|Invalid buffer size: {SIZE}")


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    parts = block(lines, at, ahead=6)
    text = max(
        (join_words(parts), join_pieces(parts)),
        key=lambda each: sum(bool(p.search(each)) for p in (_MOST, _REQUESTED, _OTHER)),
    )
    allocated, other = find_amount(_ALLOCATED, text), find_amount(_OTHER, text)
    return Failure(
        family="mps",
        kind="limit" if find_amount(_MOST, text) is not None else "buffer",
        where="device",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        requested=find_amount(_REQUESTED, text),
        allocated=allocated,
        process=None if allocated is None or other is None else allocated + other,
        limit=find_amount(_MOST, text),
        device="MPS",
        frames=frames.before(lines, at),
    )
