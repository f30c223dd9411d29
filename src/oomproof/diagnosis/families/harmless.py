"""Messages that speak of memory and are not failures: a try that had an alternative, a warning about a large copy."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis.amounts import SIZE, find_amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_pieces, join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"ran out of memory trying to allocate",
    r"exceeds 10% of (?:free )?system memory",
    r"Plan failed with",
    r"not a failure",
    r"omitting per-process memory info",
    r"caller indicates",
    r"cudaMalloc retries",
    r"[Aa]ttempting to copy inputs",
    r"using CPU for .*(?:assign|loss)",
    r"OutOfMemoryError in \w+, using CPU",
    r"CPU mode is applied",
    r"DecompressionBombWarning",
    r"could not allocate pinned host memory",
    r"on device was unsuccessful, probably due to a lack of memory",  # nnU-Net
)
_REQUESTED = Pattern(rf"[Tt]r(?:ied|ying) to allocate {SIZE}|Allocation of (\d{{1,20}}) exceeds")


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    parts = block(lines, at, ahead=5)
    text = f"{join_words(parts)} {join_pieces(parts)}"
    if "ran out of memory trying" in line.text and "not a failure" not in text and "caller indicates" not in text:
        return None
    if "Plan failed" in line.text and "emory" not in text and "ALLOC" not in text and "cudnnException" not in text:
        return None
    return Failure(
        family="harmless",
        kind=_kind(line.text),
        where="host" if "system memory" in line.text or "pinned host" in line.text else "device",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        fatal=False,
        requested=find_amount(_REQUESTED, text),
        op="boxes" if re.search(r"iou|ssign|overlap|match", line.text, re.IGNORECASE) else "",
    )


def _kind(text: str) -> str:
    if "Plan failed" in text:
        return "plan"
    if "system memory" in text:
        return "large_copy"
    if "on device was unsuccessful" in text or "copy inputs" in text or "using CPU" in text or "CPU mode" in text:
        return "on_cpu"
    return "workspace" if "ran out" in text or "caller" in text or "not a failure" in text else "other"
