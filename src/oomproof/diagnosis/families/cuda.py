"""PyTorch on a GPU: «CUDA out of memory» in its five eras, for ROCm, XPU and NPU too, and the texts without numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from oomproof.diagnosis import frames
from oomproof.diagnosis.amounts import SIZE, amount, find_amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_pieces, join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"(?:CUDA|HIP|XPU|NPU|MUSA|MLU) out of memory",
    r"Tried to allocate (?:-?\d|more)",
    r"(?:CUDA|cuda|HIP)[^\n]{0,40}error[^\n]{0,30}: out of memory",
    r"cuda runtime error \(2\)",
    r"error=2 : out of memory",
    r"cudaErrorMemoryAllocation",
    r"hipErrorOutOfMemory",
    r"CUDA ran out of memory outside",
    r"OutOfMemoryError: Allocation on device",
    r"CUDA driver error: out of memory",
    r"^\s*(?:\w+\.)*OutOfMemoryError\s*$",
    r"CUDA_ERROR_OUT_OF_MEMORY(?!.*failed to alloc)",
)
_NOT_OURS = Pattern(
    r"MPS backend|CachingHostAllocator|failed to alloc|RESOURCE_EXHAUSTED|tensorflow/|stream_executor|xla/",
    re.IGNORECASE,
)
_STOP = Pattern(r"out of memory\. Tried|Error: (?!CUDA out)|^\S{1,80}(?:Error|Exception):")
_REQUESTED = Pattern(rf"Tried to allocate {SIZE}|Requested size: {SIZE}|Requested\s*: {SIZE}")
_TOTAL = Pattern(rf"{SIZE} total capac|total capaci?ty of {SIZE}|Device limit\s*: {SIZE}")
_FREE = Pattern(rf"{SIZE} free|of which {SIZE} is free|Free \(according to CUDA\)\s*: {SIZE}")
_ALLOCATED = any_of(
    rf"{SIZE} already allocated",
    rf"Of the allocated memory {SIZE} is allocated",
    rf"{SIZE} is allocated by PyTorch",
    rf"Currently allocated\s*: {SIZE}",
)
_RESERVED = Pattern(rf"{SIZE} reserved in total")
_EXTRA = Pattern(rf"{SIZE} is reserved by PyTorch but unallocated|{SIZE} cached")
_ALLOWED = Pattern(rf"{SIZE} allowed;|PyTorch limit[^:]{{0,60}}: {SIZE}")
_PROCESS = Pattern(rf"this process has {SIZE} memory in use")
_OTHERS = Pattern(rf"Process (\d{{1,10}}) has {SIZE} memory in use")
_DEVICE = Pattern(r"\b(GPU|NPU|XPU|MLU) (\d{1,3})\b")
_CAUGHT = any_of(
    r"[Aa]ttempting to copy inputs",
    r"using CPU",
    r"WARNING",
    r"[Ss]kipping",
    r"skipped",
    r"retry",
    r"[Cc]aught",
    r"Plan failed",
    r"try(?:ing)? (?:again )?with",
    r"will be decreased",
)


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    if _NOT_OURS.search(line.text):
        return None
    parts = block(lines, at, _STOP)
    if len(parts[0]) < 30 and at and lines[at - 1].rank == line.rank:
        parts = [lines[at - 1].text, *parts]  # the sentence began on the line before
    found = _together(_numbers(join_words(parts)), _numbers(join_pieces(parts)))
    stack = frames.before(lines, at)
    if found.kind == "bare" and stack and stack[-1].name == "pin_memory":
        # CUDA's own error, yet about the host: the driver refused page-locked memory for a batch.
        found = replace(found, family="cpu", kind="pinned", where="host", device="CPU")
    return replace(
        found,
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        fatal=not _CAUGHT.search(line.text),
        frames=stack,
    )


def _together(first: Failure, second: Failure) -> Failure:
    """A line may be wrapped at words or anywhere: what one reading misses, the other may have."""
    names = ("requested", "total", "free", "allocated", "reserved", "process", "limit")
    missing = {name: getattr(second, name) for name in names if getattr(first, name) is None}
    kind = second.kind if first.kind == "bare" else first.kind
    return replace(first, kind=kind, others=first.others or second.others, **missing)


def _numbers(text: str) -> Failure:
    allocated, reserved = find_amount(_ALLOCATED, text), find_amount(_RESERVED, text)
    extra = find_amount(_EXTRA, text)
    if reserved is None and allocated is not None and extra is not None:
        reserved = allocated + extra
    total = find_amount(_TOTAL, text)
    requested = 1 << 60 if "more than 1EB" in text else find_amount(_REQUESTED, text)
    device = _DEVICE.search(text)
    # Under WSL the driver answers with -1 for what it does not know, printed as 16 EiB.
    others = tuple(
        (int(pid), size)
        for pid, size in ((pid, amount(held)) for pid, held in _OTHERS.findall(text))
        if size is not None and (total is None or size <= total)
    )
    limit = find_amount(_ALLOWED, text)
    if limit is not None and total is not None and limit >= total:
        limit = None
    process = find_amount(_PROCESS, text)
    # In a container the driver does not know the process by its number there, and says 0 bytes.
    if process is not None and (process < (reserved or 0) or (total is not None and process > total)):
        process = None
    if process is None and reserved is not None and others:
        others, process = _ourselves(others, reserved)
    return Failure(
        family="cuda",
        kind=_kind(text, requested),
        where="device",
        line=0,
        quote="",
        requested=requested,
        total=total,
        free=find_amount(_FREE, text),
        allocated=allocated,
        reserved=reserved,
        process=process,
        others=others,
        limit=limit,
        device=f"{device[1]} {device[2]}" if device else "",
    )


def _kind(text: str, requested: int | None) -> str:
    if "outside PyTorch's allocator" in text:
        return "outside_allocator"
    return "numbers" if requested is not None else "bare"


def _ourselves(others: tuple[tuple[int, int], ...], reserved: int) -> tuple[tuple[tuple[int, int], ...], int | None]:
    """In a container, this process is listed under a number from outside: it holds its reserve and a context."""
    likely = [each for each in others if reserved <= each[1] <= reserved + (2 << 30)]
    if not likely:
        return others, None
    own = min(likely, key=lambda each: each[1] - reserved)
    return tuple(each for each in others if each is not own), own[1]
