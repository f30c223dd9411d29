"""PyTorch's allocator for the CPU, and pinned memory."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.amounts import SIZE, find_amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_pieces, join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = Pattern(
    r"DefaultCPUAllocator|CPUAllocator\.cpp|alloc_cpu\.cpp|posix_memalign|you tried to allocate|Buy new RAM"
    r"|\$ Torch: not enough memory|cudaHostAlloc|CachingHostAllocator|C10 Out of Memory"
    r"|pin_memory[^\n]{0,60}out of memory|could not (?:create|execute) a primitive\b"
)
_PINNED = Pattern(r"cudaHostAlloc|CachingHostAllocator|pin_memory")
_PRIMITIVE = Pattern(r"could not (?:create|execute) a primitive\b")
"""oneDNN, which PyTorch lets compute on the CPU, says so where it gets no memory for a kernel or its scratch"""
_REQUESTED = any_of(
    rf"(?:tried|Trying) to allocate {SIZE}",
    r"trying to allocate (\d{1,20}) ?(?:bytes|B\b)",
    r"tried to allocate (\d{1,20}GB)",
)


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    parts = block(lines, at, ahead=4)
    requested = next(
        (
            size
            for text in (join_words(parts), join_pieces(parts))
            if (size := find_amount(_REQUESTED, text)) is not None
        ),
        None,
    )
    return Failure(
        family="cpu",
        kind="pinned" if _PINNED.search(line.text) else "primitive" if _PRIMITIVE.search(line.text) else "allocator",
        where="host",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        requested=requested,
        device="CPU",
        frames=frames.before(lines, at),
    )
