"""A log of any size, read once and in bounded memory: its beginning, its end, and what stands around telling words.

A log may have a gigabyte. So bytes are searched before any line is looked at, and only windows around the words that
a memory failure comes with are kept, as are samples of everything else, for trends.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO

CHUNK = 1 << 20
HEAD = 256 << 10
TAIL = 256 << 10
BACK, AHEAD = 12 << 10, 6 << 10
"""what is kept before and behind a telling word: its traceback, the rest of its message"""
SAMPLE = 2 << 10
MOST_SAMPLES = 512
FIRST_WINDOWS, LAST_WINDOWS = 40, 80
HITS_A_CHUNK, MOST_HITS = 48, 5000
MOST_OF_A_WINDOW = 24 << 10

# Each costs on every megabyte, so they are few, and long: long ones are found at 2 to 4 GB/s, short ones at a fraction.
# Every message of a memory failure has one of them in it or a traceback before it.
WORDS = (
    b"out of memory",
    b" allocate ",
    b"exhausted",
    b"bad_alloc",
    b"_status_",
    b"killed",
    b"sigkill",
    b"bus error",
    b"shared memory",
    b"exit code",
    b"traceback (most",
    b"memory limit",
    b"maxinuse:",
)
SELDOM_MEANT = {
    b"_status_": re.compile(rb"(?:cudnn|cublas|cusolver)_status_"),
    b"exit code": re.compile(rb"exit code[^\n]{0,8}(?:13[57]|-[79])"),
}
"""words that are common in logs for other reasons, and how they stand where they mean something"""
LONGEST_COLOUR = 64
SELDOM = 500
"""bytes between two colours from which they are few"""
COLOURS_WITHIN = 8 << 10
"""bytes in which the colours of a log are looked for"""
_COLOURS = re.compile(rb"\x1b\[[0-9;?]{0,48}[A-Za-z]")
BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass
class Segment:
    """A stretch of the log as it stands there; ``line`` is the number of its first line."""

    start: int
    line: int
    data: bytes
    sampled: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass
class KeptLog:
    """What was kept of a log."""

    segments: list[Segment] = field(default_factory=list)
    size: int = 0
    lines: int = 0
    cut: bool = False


def read(stream: BinaryIO) -> KeptLog:
    sizes: list[int] = []
    kept = keep_parts(_remove_invisible(_chunks(stream, sizes)))
    kept.size = sum(sizes)
    return kept


def keep_parts(chunks: Iterable[bytes]) -> KeptLog:
    """The parts of a log that are worth reading, in order and without overlap."""
    head = Segment(0, 1, b"")
    first: list[Segment] = []
    last: deque[Segment] = deque(maxlen=LAST_WINDOWS)
    samples: list[Segment] = []
    every = 1
    tail, tail_start, tail_line = b"", 0, 1
    searched = 0  # everything before this place has been searched
    for count, chunk in enumerate(chunks):
        if head.end < HEAD and tail_start + len(tail) == head.end:
            head.data += chunk[: HEAD - head.end]
        data, start, line = tail + chunk, tail_start, tail_line
        until = max(0, len(data) - AHEAD)
        for window in _windows(data, start, line, max(0, searched - start), until):
            _add(window, first, last)
        searched = max(searched, start + until)
        if count % every == 0:
            samples.append(_sample(data, start, line, max(0, len(data) - len(chunk))))
            if len(samples) > MOST_SAMPLES:
                samples, every = samples[::2], every * 2
        surplus = max(0, len(data) - TAIL)
        tail_line = line + data.count(b"\n", 0, surplus)
        tail, tail_start = data[surplus:], start + surplus
    for window in _windows(tail, tail_start, tail_line, max(0, searched - tail_start), len(tail)):
        _add(window, first, last)
    size = tail_start + len(tail)
    ending = _whole_lines(Segment(tail_start, tail_line, tail))
    segments = _in_order([_whole_lines(head), *first, *last, *samples, ending])
    lines = tail_line + tail.count(b"\n") + (0 if tail.endswith(b"\n") or not tail else 1) - 1
    return KeptLog(segments, size, lines, sum(len(segment.data) for segment in segments) < size)


def _chunks(stream: BinaryIO, sizes: list[int]) -> Iterator[bytes]:
    chunk = stream.read(CHUNK)
    decode = _decoder(chunk)
    while chunk:
        sizes.append(len(chunk))
        yield decode(chunk)
        chunk = stream.read(CHUNK)


def _remove_invisible(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Without NULs and colours: a word that they stand in would not be found, and windows would be full of them."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        half = data.rfind(b"\x1b", max(0, len(data) - LONGEST_COLOUR))
        rest = data[half:] if half >= 0 else b""
        data = _visible(data[:half] if half >= 0 else data)
        if data:
            yield data
    if rest:
        yield _visible(rest)


def _visible(data: bytes) -> bytes:
    if b"\0" in data:
        data = data.replace(b"\0", b"")
    if b"\x1b" not in data:
        return data
    # A search by pattern stops at each of millions of colours; they are few different ones, and replacing is quick.
    if data.count(b"\x1b") * SELDOM > len(data):
        for colour in set(_COLOURS.findall(data[:COLOURS_WITHIN])):
            data = data.replace(colour, b"")
    return _COLOURS.sub(b"", data)


def _decoder(chunk: bytes) -> Callable[[bytes], bytes]:
    """PowerShell redirects in UTF-16; anything else is read as UTF-8."""
    encoding = next((name for mark, name in BOMS if chunk.startswith(mark)), "")
    if not encoding and len(chunk) >= 64 and chunk[1:64:2].count(0) >= 28 and chunk[0:64:2].count(0) == 0:
        encoding = "utf-16-le"
    if not encoding.startswith("utf-16"):
        return lambda data: data
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    return lambda data: decoder.decode(data).encode("utf-8", "replace")


def _windows(data: bytes, start: int, line: int, begin: int, end: int) -> Iterator[Segment]:
    """What stands around telling words between ``begin`` and ``end``."""
    if begin >= end:
        return
    low = data[begin : min(len(data), end + 32)].lower()
    places: list[int] = []
    for word in WORDS:
        if word in low:
            places.extend(_places(low, word))
    if not places:
        return
    counted, lines = 0, line
    for left, right in _spans(sorted(begin + place for place in places), len(data)):
        lines += data.count(b"\n", counted, left)
        counted = left
        yield _whole_lines(Segment(start + left, lines, data[left:right]))


def _places(low: bytes, word: bytes) -> list[int]:
    """Where the word stands and means something; of many, the first and the last."""
    meant = SELDOM_MEANT.get(word)
    if meant is not None:
        found = [each.start() for each in islice(meant.finditer(low), MOST_HITS)]
        return found[: HITS_A_CHUNK // 2] + found[HITS_A_CHUNK // 2 :][-HITS_A_CHUNK // 2 :]
    places: list[int] = []
    at = low.find(word)
    while at >= 0 and len(places) < HITS_A_CHUNK:
        places.append(at)
        at = low.find(word, at + len(word) + (0 if len(places) < HITS_A_CHUNK // 2 else AHEAD))
    return [*places, low.rfind(word)]


def _spans(places: list[int], size: int) -> Iterator[tuple[int, int]]:
    """Windows around places; those that touch become one."""
    left = right = -1
    for place in places:
        low, high = max(0, place - BACK), min(size, place + AHEAD)
        if low > right:
            if right >= 0:
                yield from _ends(left, right)
            left = low
        right = high
    if right >= 0:
        yield from _ends(left, right)


def _ends(left: int, right: int) -> Iterator[tuple[int, int]]:
    """A stretch that is too long to keep: how it begins and how it ends."""
    if right - left <= MOST_OF_A_WINDOW:
        yield left, right
    else:
        yield left, left + MOST_OF_A_WINDOW // 2
        yield right - MOST_OF_A_WINDOW // 2, right


def _whole_lines(segment: Segment) -> Segment:
    """Without the half line at its beginning, unless nothing else is there."""
    cut = segment.data.find(b"\n") + 1
    if segment.start == 0 or not 0 < cut < len(segment.data) // 2:
        return segment
    return Segment(segment.start + cut, segment.line + 1, segment.data[cut:], segment.sampled)


def _sample(data: bytes, start: int, line: int, begin: int) -> Segment:
    left = begin + (len(data) - begin) // 2
    before = line + data.count(b"\n", 0, left)
    found = _whole_lines(Segment(start + left, before, data[left : left + SAMPLE], True))
    found.data = found.data[: found.data.rfind(b"\n") + 1]
    return found


def _add(window: Segment, first: list[Segment], last: deque[Segment]) -> None:
    (first if len(first) < FIRST_WINDOWS else last).append(window)


def _in_order(segments: list[Segment]) -> list[Segment]:
    """Sorted by place; what two of them share is kept once."""
    done: list[Segment] = []
    for segment in sorted(segments, key=lambda each: (each.start, -len(each.data))):
        if not segment.data:
            continue
        previous = done[-1] if done else None
        if previous is None or segment.start >= previous.end:
            done.append(segment)
        elif segment.end > previous.end:
            previous.data += segment.data[previous.end - segment.start :]
            previous.sampled = previous.sampled and segment.sampled
    return done
