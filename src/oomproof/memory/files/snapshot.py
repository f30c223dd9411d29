"""A PyTorch memory snapshot (torch.cuda.memory._dump_snapshot) as a Timeline: what a real run allocated.

What a snapshot cannot tell: whether a block is a weight, a gradient or an activation, and which phase a moment belongs
to. So every block's phase is ``setup``, and its kind says only whether it outlived the recording: ``activation`` if it
was alive at the end, ``temporary`` if not. A block's owner is the line of Python that allocated it. Blocks from before
the recording are born at its beginning. A block counts until its memory can be used again (free_completed), a little
longer than torch.cuda.memory_allocated counts it where other streams still use it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from oomproof.errors import DamagedFile, InputError
from oomproof.files.looking import is_file, say_why_no_file
from oomproof.files.regular import read_regular
from oomproof.memory.about import About
from oomproof.memory.files.plain_pickle import NotPlain, read_plain
from oomproof.memory.files.timeline_check import MAX_BYTES, clean_value
from oomproof.memory.timeline import KINDS, Builder, Timeline

MAX_FILE = 512 << 20
MAX_EVENTS = 4_000_000
MAX_FRAMES = 200
MOST_FRAMES = 2_000_000
"""frames that are looked at in all stacks together; the blocks of further stacks have no owner"""
BYTES_A_ROW = 12
"""the least that an event or a block takes in a file, with its keys and numbers; real ones take more than 30"""
NOT_COUNTED = "memory outside PyTorch's allocator (CUDA context, NCCL, other processes)"
RECORD = (
    "call torch.cuda.memory._record_memory_history() before the training "
    "and torch.cuda.memory._dump_snapshot(file) after it"
)
SEGMENT_CHANGE = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
PYTORCH = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")


class _Event(NamedTuple):
    action: str
    address: int
    size: int
    frames: Any


def load_snapshot(path: str | os.PathLike[str]) -> Timeline:
    """What the busiest GPU recorded; DamagedFile if the file is not a snapshot or nothing was recorded."""
    file = Path(path)
    if not is_file(file):
        raise InputError(f"{say_why_no_file(file)}: expected a memory snapshot")
    try:
        if file.stat().st_size > MAX_FILE:
            raise NotPlain(
                f"expected at most {MAX_FILE >> 20} MiB; found {file.stat().st_size >> 20} MiB; "
                "record less, with _record_memory_history(max_entries=100000)"
            )
        content = read_regular(file, MAX_FILE)
        return _timeline(read_plain(content), file.name, len(content))
    except NotPlain as error:
        raise DamagedFile(f"{clean_value(file.name)}: {error}; {RECORD}") from None
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None


def _timeline(snapshot: Any, name: str, written: int) -> Timeline:
    if not isinstance(snapshot, dict):
        raise NotPlain(f"expected a snapshot, which is a dict; found {type(snapshot).__name__}")
    traces, segments = _lists(snapshot, "device_traces"), _lists(snapshot, "segments")
    device = max(range(len(traces)), key=lambda i: len(_list(traces[i], "device_traces")), default=-1)
    _refuse_repetition(traces[device] if traces else [], segments, written)
    events = list(_events(traces[device])) if traces else []
    if not any(event.action == "alloc" for event in events):
        raise NotPlain("expected a history of allocations; found none, for recording was not on")
    segments = [s for s in segments if isinstance(s, dict) and s.get("device", 0) == device]

    step = Builder()
    lines = _Lines()
    live: dict[int, int] = {}
    for address, size, frames in _from_before(events, segments):
        live[address] = _allocate(step, size, lines.of(frames))
    for event in events:
        if event.action == "alloc":
            if event.address in live:
                step.free(live[event.address])
            live[event.address] = _allocate(step, event.size, lines.of(event.frames))
        elif event.action == "free_completed" and event.address in live:
            step.free(live.pop(event.address))
    for block in live.values():
        step.kinds[block] = KINDS.index("activation")
    others = sum(1 for trace in traces if trace) - 1
    return step.build(
        About(
            job=str(clean_value(name)),
            recorded=True,
            device=device,
            reserved=_find_peak_reserved(events, segments),
            not_counted=(NOT_COUNTED, *([f"{others} more GPU(s) of this snapshot"] if others else [])),
        )
    )


def _refuse_repetition(trace: Sequence[Any], segments: Sequence[Any], size: int) -> None:
    """A pickle may name one event or block a million times in two million bytes; PyTorch writes each by itself."""
    blocks = (segment.get("blocks") for segment in segments if isinstance(segment, dict))
    rows = len(trace) + len(segments) + sum(len(each) for each in blocks if isinstance(each, list))
    if rows * BYTES_A_ROW > size:
        raise NotPlain(f"expected every event and block to be written out; found {rows} in {size} bytes")


def _allocate(step: Builder, size: int, line: tuple[str, str]) -> int:
    return step.allocate(size, kind="temporary", owner=line[0], op=line[1])


def _events(trace: Sequence[Any]) -> Iterator[_Event]:
    if len(trace) > MAX_EVENTS:
        raise NotPlain(f"expected at most {MAX_EVENTS} events; found {len(trace)}")
    total = 0
    for entry in trace:
        if not isinstance(entry, dict) or not isinstance(entry.get("action"), str):
            raise NotPlain("expected each event to be a dict with an action; found one that is not")
        action, address, size = entry["action"], entry.get("addr", 0), entry.get("size", 0)
        if type(address) is not int or type(size) is not int or size < 0:
            raise NotPlain(f"expected an event's address and size in bytes; found {str((address, size))[:60]}")
        total += size
        yield _Event(action, address, size, entry.get("frames"))
    if total >= MAX_BYTES:
        raise NotPlain(f"expected less than {MAX_BYTES >> 40} TiB of allocations; found more")


def _from_before(events: Sequence[_Event], segments: Sequence[dict[str, Any]]) -> Iterator[tuple[int, int, Any]]:
    """(address, size, frames) of blocks that no event allocated, but that one frees or the end still has."""
    known: set[int] = set()
    for event in events:
        if event.action == "alloc":
            known.add(event.address)
        elif event.action == "free_completed" and event.address not in known:
            known.add(event.address)
            # The event's frames tell who freed it, not who made it.
            yield event.address, event.size, None
    for segment in segments:
        address = segment.get("address", 0)
        for block in _list(segment.get("blocks"), "blocks"):
            size, asked = (block.get("size"), block.get("requested_size")) if isinstance(block, dict) else (None, None)
            if type(size) is not int or not 0 <= size < MAX_BYTES >> 20 or type(address) is not int:
                raise NotPlain("expected each block of a segment to have a size; found one that has not")
            if str(block.get("state")).startswith("active") and address not in known:
                known.add(address)
                yield address, asked if type(asked) is int and 0 < asked <= size else size, block.get("frames")
            address += size


def _find_peak_reserved(events: Sequence[_Event], segments: Sequence[dict[str, Any]]) -> int:
    """The most the allocator held: backwards from what it holds at the end."""
    sizes = [segment.get("total_size", 0) for segment in segments]
    held = peak = sum(size for size in sizes if type(size) is int and 0 <= size < MAX_BYTES)
    for event in reversed(events):
        held -= SEGMENT_CHANGE.get(event.action, 0) * event.size
        peak = max(peak, held)
    return min(peak, MAX_BYTES)


class _Lines:
    """The line of Python that each stack of frames stands for; stacks are shared, so each is looked at once."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, str]] = {}
        self._left = MOST_FRAMES

    def of(self, frames: Any) -> tuple[str, str]:
        """(owner, op): the innermost line outside PyTorch's own package, or else within it."""
        if id(frames) not in self._seen:
            self._seen[id(frames)] = self._line(frames)
        return self._seen[id(frames)]

    def _line(self, frames: Any) -> tuple[str, str]:
        if frames is None:
            return "(before the recording)", "unknown"
        first = None
        for frame in islice(_list(frames, "frames"), min(MAX_FRAMES, self._left)):
            self._left -= 1
            if isinstance(frame, dict) and isinstance(name := frame.get("filename"), str) and name.endswith(".py"):
                first = first or frame
                if not PYTORCH.search(name):
                    return _describe(frame)
        return _describe(first) if first else ("(no Python frame)", "unknown")


def _describe(frame: dict[str, Any]) -> tuple[str, str]:
    name, short = str(frame.get("name"))[:80], re.split(r"[/\\]", frame["filename"])[-1][-80:]
    return _one_line(f"{short}:{str(frame.get('line'))[:10]} {name}"), _one_line(name)


def _one_line(text: str) -> str:
    return " ".join(str(clean_value(text)).split())


def _lists(snapshot: dict[Any, Any], key: str) -> list[Any]:
    return _list(snapshot.get(key), key)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise NotPlain(f"expected «{what}» to be a list, as in a snapshot of PyTorch 2; found {type(value).__name__}")
    return value
