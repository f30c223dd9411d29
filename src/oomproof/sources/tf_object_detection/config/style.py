"""How a file is written, so that what is added looks like the rest of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oomproof.sources.tf_object_detection.config.text_file import Message

_OPENING = re.compile(r"[ \t]*:?[ \t]*[{<]")


@dataclass(frozen=True)
class Style:
    """How a file is written: line ends, what a level is indented by, and what stands between a name and its fields."""

    newline: str = "\n"
    step: str = "  "
    opening: str = " {"

    @property
    def closing(self) -> str:
        return ">" if self.opening.endswith("<") else "}"


def style_of(text: str, tree: Message) -> Style:
    """The style of a file, by its first message and its first indented field."""
    newline = "\r\n" if "\r\n" in text else "\n"
    step = opening = None
    for each in tree.fields:
        if not isinstance(each.value, Message):
            continue
        between = text[each.start + len(each.name) : each.value.start + 1]
        if opening is None and _OPENING.fullmatch(between):
            opening = between
        for child in each.value.fields[:1]:
            above, below = indent_at(text, each.start), indent_at(text, child.start)
            if step is None and begins_line(text, child.start) and below.startswith(above) and below != above:
                step = below[len(above) :]
    return Style(newline, "  " if step is None else step, " {" if opening is None else opening)


def line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def indent_at(text: str, offset: int) -> str:
    """The blanks that the line of an offset begins with."""
    start = line_start(text, offset)
    line = text[start:offset]
    return line[: len(line) - len(line.lstrip(" \t"))]


def begins_line(text: str, offset: int) -> bool:
    return not text[line_start(text, offset) : offset].strip(" \t")
