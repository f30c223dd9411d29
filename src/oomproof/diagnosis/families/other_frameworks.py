"""PaddlePaddle, MXNet, CuPy, Darknet, Caffe and bare CUDA: «out of memory» in their words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.amounts import SIZE, find_amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"Out of memory error on GPU",
    r"Cannot allocate [\d.]+\w* memory on",
    r"cudaMalloc (?:retry )?failed",
    r"cupy\.cuda\.memory",
    r"Out of memory allocating",
    r"CUDA Error: out of memory",
    r"[Cc]heck failed: error == cudaSuccess \(2",
    r"Error at: [^\n]{0,200}out of memory",
    r"OUT_OF_(?:[A-Z]{1,10}_)?MEMORY",
    r"(?:[Cc]ould not|[Cc]annot|[Cc]an't|[Ff]ailed to|[Uu]nable to) allocate (?:\w{1,20} ){0,4}"
    r"(?:memory|bytes|buffer|tensor)",
    r"DataLossError: .*memory",
    r"No executable batch size found",
    r"\bout[- ]of[- ]memory\b",
    r"\bOOM\b",
    r"[Oo]ut of [Mm]emory",
    r"[Nn]ot enough (?:\w{1,20} ){0,3}memory",
    r"ran out of (?:GPU )?memory",
    r"Allocation failed for size",  # Gaudi
)
_REQUESTED = Pattern(
    rf"[Cc]annot allocate {SIZE} memory|Out of memory allocating ([\d,]{{1,26}} bytes)|allocate (?:tensor with )?{SIZE}"
    rf"|buffer of size (\d{{1,20}})\b|failed for size:{{0,2}} ?(\d{{1,20}})\b"
)
_ALLOCATED = Pattern(rf"{SIZE} memory has been allocated|allocated so far: ([\d,]{{1,26}} bytes)")
_FREE = Pattern(rf"available memory is only {SIZE}")
# Words about memory that report no failure: options, advice, comments, documentation.
_TALK = Pattern(
    r"(?:avoid|prevent|to fix|in case of|if (?:you|there|it)|when (?:you|it)|may (?:run|go"
    r"|cause)|might|could (?:run|cause)|reduce|help with|handle|guard|--\w|https?://"
    r"|catch|except\b|def |class |import |#\s|potential|risk of|without running|no longer"
    r"|static TLS|fixed|safe|don't|do not|not an? |oom_score|zero OOM|OOMs?: 0|num_ooms)",
    re.IGNORECASE,
)
# An exception means it, whatever advice it has to give; one about a value or a name does not.
_ABOUT_NAMES = Pattern(r"^\s*(?:[\w.]{1,80}\.)?(?:Value|Type|Key|Attribute|Import|Index|Name|Assertion)Error\b")
_RAISED = Pattern(
    r"^\s*[\w.]{0,120}(?:Error|Exception)\b"
    r"[^\n]{0,300}?(?:out[- ]of[- ]memory|OUT_OF_|not enough (?:\w{1,20} ){0,3}memory|allocate)",
    re.IGNORECASE,
)
_HOST = Pattern(r"\bRAM\b|\bCPU\b|host|system memory|swap", re.IGNORECASE)


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    text = join_words(block(lines, at, ahead=4))
    requested = find_amount(_REQUESTED, text)
    known = re.search(
        r"Out of memory error on GPU|cudaMalloc|cupy|CUDA Error|cudaSuccess|Error at:|No executable batch", line.text
    )
    if "static TLS block" in line.text or _ABOUT_NAMES.search(line.text):
        return None
    if not known and not _RAISED.search(line.text) and _TALK.search(line.text):
        return None
    if not known and not re.search(
        r"error|fail|exception|exhausted|fatal|abort|kill|crash|^\W*(?:out of memory|OOM)\W*$|ran out",
        line.text,
        re.IGNORECASE,
    ):
        return None
    return Failure(
        family="other",
        kind="numbers" if requested is not None else "search" if "No executable batch" in line.text else "bare",
        where="host" if _HOST.search(line.text) and "GPU" not in line.text else "device",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        fatal=not re.search(r"WARN|[Ss]kip|retry(?:ing)?\b(?! failed)|[Cc]aught", line.text),
        requested=requested,
        allocated=find_amount(_ALLOCATED, text),
        free=find_amount(_FREE, text),
        frames=frames.before(lines, at),
    )
