"""Python tracebacks in the forms people paste: plain, of rich, of IPython and notebooks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis.facts import Frame, Line

LOOK_BACK, LOOK_AHEAD = 220, 60
MOST = 80
_PLAIN = re.compile(r'File "([^"]{1,300})", line (\d{1,7})(?:, in ([\w<>.]{1,120}))?')
_RICH = re.compile(r"^\s*(/?[^\s:]{1,300}\.py):(\d{1,7})(?: in ([\w<>.]{1,120}))?\s*$")
_IPYTHON = re.compile(r"^(?:File )?(\S{1,300}\.py|<ipython-input[^>]{1,60}>)(?::(\d{1,7}),)? in (\w{1,120}|<\w+>)\(")
_CELL = re.compile(r"^(?:Cell )?In ?\[\d+\], line (\d{1,7})(?:, in (\w{1,120}))?")
_MARKED = re.compile(r"^\s*(?:-{1,6}>|❱)\s*(\d{1,7})\s*[│|]?\s*(.{0,300}\S)")
_END = re.compile(r"(?:[\w.]{1,80}\.)?[A-Z]\w{0,60}(?:Error|Exception|Interrupt)\b")
_START = re.compile(r"Traceback \(most recent call last\)|^Original stack trace|Error\s+Traceback \(most")


def before(lines: Sequence[Line], at: int) -> tuple[Frame, ...]:
    """The traceback that ends at a message, outermost frame first."""
    rank = lines[at].rank
    begin = at
    seen = 0
    for place in range(at, max(-1, at - LOOK_BACK), -1):
        line = lines[place]
        if line.rank != rank:
            continue
        begin = place
        if _START.search(line.text) and place < at:
            seen += 1
            if seen == 1:
                break
    return _frames([line for line in lines[begin:at] if line.rank == rank]) or _behind(lines, at)


def _behind(lines: Sequence[Line], at: int) -> tuple[Frame, ...]:
    """A logger may print the message first, then its traceback; one that ends with another error is not of it."""
    following = [line.text for line in lines[at + 1 : at + LOOK_BACK] if line.rank == lines[at].rank]
    start = next((place for place, text in enumerate(following[:3]) if _START.search(text)), None)
    if start is None:
        return ()
    end = next((place for place, text in enumerate(following) if place > start and _END.match(text)), len(following))
    if end < len(following) and "memory" not in following[end]:
        return ()
    return _frames([Line(0, text) for text in following[start:end]])


def after(lines: Sequence[Line], at: int) -> tuple[Frame, ...]:
    """What TensorFlow prints behind its message: where the op was defined."""
    rank = lines[at].rank
    return _frames([line for line in lines[at + 1 : at + LOOK_AHEAD] if line.rank == rank])


def _frames(lines: Sequence[Line]) -> tuple[Frame, ...]:
    found: list[Frame] = []
    for place, line in enumerate(lines):
        text = line.text
        if plain := _PLAIN.search(text):
            code = lines[place + 1].text.strip() if place + 1 < len(lines) else ""
            code = "" if _PLAIN.search(code) else code[:300]
            found.append(Frame(plain[1], int(plain[2]), plain[3] or "", code))
        elif rich := _RICH.match(text):
            found.append(Frame(rich[1], int(rich[2]), rich[3] or "<module>"))
        elif notebook := _IPYTHON.match(text):
            found.append(Frame(notebook[1], int(notebook[2] or 0), notebook[3]))
        elif cell := _CELL.match(text):
            found.append(Frame("notebook", int(cell[1]), cell[2] or "<module>"))
        elif (marked := _MARKED.match(text)) and found:
            last = found[-1]
            found[-1] = Frame(last.file, last.line or int(marked[1]), last.name, marked[2])
    return tuple(found[-MOST:])
