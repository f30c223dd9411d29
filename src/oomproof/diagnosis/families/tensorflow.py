"""TensorFlow: «OOM when allocating tensor», the BFC allocator's dump and its statistics, the driver's refusals."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.amounts import SIZE, amount, find_amount, tensor
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_pieces, join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"OOM when allocating tensor",
    r"ran out of memory trying to allocate",
    r"failed to alloc(?:ate)? [\d.]+[KMGTB]?",
    r"ResourceExhaustedError(?!.*(?:disk|grpc|quota))",
    r"Failed to allocate memory for",
    r"SameWorkerRecvDone unable to allocate",
    r"Dst tensor is not initialized",
)
_SHAPE = any_of(
    r"shape ?\[?((?:\d{1,12}, ?){0,9}\d{1,12})\]? ?(?:and|with)? ?type (\w{1,12})",
    r"with shape ?\[((?:\d{1,12}, ?){0,9}\d{1,12})\]",
)
_DEVICE = Pattern(r"device:(\w{1,8}:\d{1,3})|by allocator (\w{1,40})|Allocator \((\w{1,40})\)")
_NODE = any_of(
    r"\{\{node ([^}]{1,300})\}\}",
    r"\[\[(?:Node:|node) ([\w/.:-]{1,300})",
    r"(?:requested by op |for op )([\w/.:-]{1,300})",
    r"\[Op:(\w{1,100})\]",
)
_TRYING = Pattern(rf"trying to allocate {SIZE}")
_REFUSED = Pattern(rf"failed to alloc(?:ate)? (?:{SIZE} )?\(?(\d{{1,20}} bytes)?")
_OF_AN_OPERATION = Pattern(r"ResourceExhaustedError.{0,40}failed to allocate memory")
"""what newer versions say where older ones named the tensor"""
_STATS = {
    "limit": Pattern(r"\bLimit:\s+(\d{1,20})"),
    "in_use": Pattern(r"\bInUse:\s+(\d{1,20})"),
    "reserved": Pattern(r"\bReserved:\s+(\d{1,20})"),
    "largest": Pattern(r"LargestFreeBlock:\s+(\d{1,20})"),
}
_POOL_LIMIT = Pattern(r"memory_limit_: (\d{1,20})")
_FREE_CHUNK = Pattern(r"Free\s+at \w{1,20} of size (\d{1,20})")
_STATS_WITHIN = 4000


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    if "onnxruntime" in line.text:
        return None
    text = _text(lines, at)
    if "Dst tensor is not initialized" in line.text:
        kind, fatal = "copy", True
    elif "failed to alloc" in line.text and not _OF_AN_OPERATION.search(line.text):
        kind, fatal = "driver", False
    elif "ran out of memory trying" in line.text:
        kind, fatal = "allocator", "caller indicates" not in text
    else:
        kind, fatal = "tensor", True
        if "Out of memory while trying" in text or "Out of memory error on GPU" in text:
            return None  # of XLA or PaddlePaddle, whose readers know the next line
        if "OOM when" not in text and not _SHAPE.search(text) and "emory" not in text:
            return None  # a quota or a queue that is exhausted
    shape, dtype = _shape(text)
    device = next((group for found in _DEVICE.finditer(text) for group in found.groups() if group), "")
    requested = tensor(shape, dtype) if shape else find_amount(_TRYING, text)
    if kind == "driver" and (refused := _REFUSED.search(line.text)):
        requested = amount(refused[2] or refused[1] or "")
    node = _NODE.search(text)
    stats = _stats(lines, at)
    on_host = "cpu" in device.lower() or "host" in device.lower()
    return Failure(
        family="tensorflow",
        kind=kind,
        where="host" if on_host else "device",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        fatal=fatal,
        requested=requested,
        limit=stats.get("limit"),
        allocated=stats.get("in_use"),
        reserved=stats.get("reserved") or None,
        largest_free=stats.get("largest") or None,
        device=device,
        shape=shape,
        dtype=dtype,
        op=next((group for group in node.groups() if group), "") if node else "",
        frames=frames.before(lines, at) + frames.after(lines, at),
    )


def _text(lines: Sequence[Line], at: int) -> str:
    parts = block(lines, at, ahead=8)
    return max(
        (join_words(parts), join_pieces(parts)), key=lambda each: bool(_SHAPE.search(each)) + bool(_DEVICE.search(each))
    )


def _shape(text: str) -> tuple[tuple[int, ...], str]:
    found = _SHAPE.search(text)
    if found is None:
        return (), ""
    sides = tuple(int(side) for side in (found[1] or found[3]).split(","))
    return sides, found[2] or "float"


def _stats(lines: Sequence[Line], at: int) -> dict[str, int]:
    """The statistics nearest to the message: behind it for the allocator's own warning, before it for the exception."""
    found: dict[str, int] = {}
    number = lines[at].number
    nearby = [line for line in lines[max(0, at - 600) : at + 600] if abs(line.number - number) < _STATS_WITHIN]
    for line in nearby:
        for name, pattern in _STATS.items():
            if (value := pattern.search(line.text)) is not None:
                found[name] = int(value[1])
        if (value := _POOL_LIMIT.search(line.text)) is not None:
            found.setdefault("limit", int(value[1]))
        if (value := _FREE_CHUNK.search(line.text)) is not None:
            found["largest"] = max(found.get("largest", 0), int(value[1]))
    return found
