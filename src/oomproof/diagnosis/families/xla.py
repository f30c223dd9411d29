"""XLA and JAX: refusals with their report of buffers, and TPU programs that do not fit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.amounts import SIZE, amount, find_amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"RESOURCE_EXHAUSTED: ",
    r"Out of memory (?:while trying to allocate|allocating \d)",
    r"Resource exhausted: Out\s*$",  # cut by the width of a terminal
    r"Ran out of memory in memory space",
    r"BufferAssignment OOM",
    r"Failed to allocate request for",
    r"Attempting to (?:reserve|allocate) [\d.]+\w* at the bottom",
    r"allocating device buffer",
    r"Exceeded hbm capacity",
)
_REQUESTED = any_of(
    r"(?:trying to allocate|Out of memory allocating) (\d{1,20} bytes)",
    rf"trying to allocate {SIZE}",
    rf"allocate request for {SIZE}",
    rf"Attempting to (?:reserve|allocate) {SIZE}",
)
_USED = Pattern(rf"Used {SIZE} of {SIZE} (?:hbm|vmem|smem)")
_FREE = Pattern(rf"{SIZE} free")
_RESERVABLE = Pattern(rf"{SIZE} reservable")
_TOTAL = Pattern(rf"total allocation:\s+{SIZE}")
_SIZE_LINE = Pattern(rf"^\s*Size: {SIZE}")
_OPERATOR = Pattern(r'op_name="([^"]{1,200})')
_SOURCE = Pattern(r'source_file="([^"]{1,300})" source_line=(\d{1,7})')
_LABEL = Pattern(r"(?:Shape|Entry Parameter Subshape): (\S{1,120})")
REPORT = 160


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    if "CUDNN engine" in line.text:
        return None  # an algorithm that was tried out; families/handles.py reads it
    text = join_words(block(lines, at, ahead=10))
    if "RESOURCE_EXHAUSTED" in line.text and not re.search(r"emory|alloc|hbm|OOM", text):
        return None  # a quota of another service
    report = _report(lines, at)
    used = _USED.search(text)
    pieces = _pieces(report)
    return Failure(
        family="xla",
        kind="tpu"
        if used or "at the bottom" in text
        else "program"
        if pieces or find_amount(_TOTAL, join_words(report))
        else "buffer"
        if re.search(r"device buffer|allocate request for", text)
        else "bare",
        where="device",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        requested=find_amount(_REQUESTED, text),
        total=amount(used[2]) if used else None,
        free=find_amount(_FREE, text),
        largest_free=find_amount(_RESERVABLE, text),
        process=amount(used[1]) if used else find_amount(_TOTAL, join_words(report)),
        device="TPU" if used else "",
        op=pieces[0][1] if pieces else "",
        pieces=pieces,
        frames=frames.before(lines, at),
    )


def _report(lines: Sequence[Line], at: int) -> list[str]:
    return [line.text for line in lines[at : at + REPORT] if line.rank == lines[at].rank]


def _pieces(report: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """The largest buffers, with the line of the user's code where the report has it."""
    found: list[tuple[int, str]] = []
    for place, text in enumerate(report):
        if (size := find_amount(_SIZE_LINE, text)) is not None:
            about = " ".join(report[place + 1 : place + 5])
            source = _SOURCE.search(about)
            operator = _OPERATOR.search(about)
            shape = _LABEL.search(about)
            words = [
                operator[1].rsplit("/", 1)[-1].split("[")[0] if operator else "",
                shape[1] if shape else "",
                f"{source[1].rsplit('/', 1)[-1]}:{source[2]}" if source else "",
            ]
            found.append((size, " ".join(word for word in words if word)))
    return tuple(sorted(found, reverse=True)[:5])
