"""Where a field may be put into a text, and what of the text goes with one that is removed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from oomproof.sources.tf_object_detection.config.reading import MessageSection
from oomproof.sources.tf_object_detection.config.style import Style, begins_line, indent_at, line_start
from oomproof.sources.tf_object_detection.config.text_file import Field, ListValue, Message

_REST_OF_LINE = re.compile(r"[^\S\n]*(?:#[^\n]*)?(?=\n|\Z)")
"""nothing but blanks and a comment"""


@dataclass(frozen=True)
class TextChange:
    """What stands from ``start`` to ``end`` becomes ``new``."""

    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Gap:
    """A place for new fields, with what goes around each. ``indent`` is None where they share a line with others."""

    at: int
    indent: str | None
    before: str
    between: str
    after: str

    def change(self, fields: Sequence[str]) -> TextChange:
        return TextChange(self.at, self.at, self.before + self.between.join(fields) + self.after)


def gap_behind(text: str, section: MessageSection, field: Field | None, style: Style) -> Gap:
    """Behind a field of a section; behind its last one where ``field`` is None."""
    place = section.places[-1]
    whole_file = not section.origins
    if field is None and not place.fields:
        return _gap_in_empty(text, place, whole_file, style)
    anchor = field or place.fields[-1]
    mark = text[anchor.full_end - 1] if anchor.full_end > anchor.end else ""
    rest = _REST_OF_LINE.match(text, anchor.full_end)
    if rest is None:  # more of the message, or its end, on the same line
        usual = mark or _usual_mark(text, place)
        return Gap(anchor.full_end, None, " " if mark else f"{usual} ", f"{usual} ", mark)
    at = rest.end() - text.endswith("\r", 0, rest.end())
    indent = _indent_in(text, place, anchor, whole_file, style)
    line = f"{style.newline}{indent}"
    return Gap(at, indent, line, f"{mark}{line}", mark)


def _gap_in_empty(text: str, place: Message, whole_file: bool, style: Style) -> Gap:
    if whole_file:
        before = style.newline if text and not text.endswith("\n") else ""
        return Gap(len(text), "", before, style.newline, style.newline)
    first = text.find("\n", place.start, place.end)
    if first < 0:
        closed = place.end - place.start == 2
        return Gap(place.start + 1, None, " ", " ", " " if closed else "")
    at = first - text.endswith("\r", 0, first)
    indent = indent_at(text, place.start) + style.step
    return Gap(at, indent, f"{style.newline}{indent}", f"{style.newline}{indent}", "")


def _usual_mark(text: str, place: Message) -> str:
    """The comma or semicolon that the fields of a message are parted by, if they are."""
    return next((text[each.full_end - 1] for each in place.fields if each.full_end > each.end), "")


def _indent_in(text: str, place: Message, anchor: Field, whole_file: bool, style: Style) -> str:
    for each in (anchor, *place.fields):
        if begins_line(text, each.start):
            return indent_at(text, each.start)
    return "" if whole_file else indent_at(text, place.start) + style.step


def removal_of_field(text: str, field: Field) -> TextChange:
    """A field with its line, if it has one of its own; else with the blanks behind it."""
    rest = _REST_OF_LINE.match(text, field.full_end)
    if rest is not None and begins_line(text, field.start):
        end = rest.end() + 1 if rest.end() < len(text) else rest.end()
        return TextChange(line_start(text, field.start), end, "")
    end = field.full_end
    if field.start > 0 and text[field.start - 1] in " \t\n{<":
        while end < len(text) and text[end] in " \t":
            end += 1
    return TextChange(field.start, end, "")


def removal_of_items(text: str, field: Field, items: ListValue, starts: set[int]) -> list[TextChange]:
    """Items of a list, by where they start, with their commas; the field itself if none is left."""
    kept = [each for each in items.items if each.start not in starts]
    if not kept:
        return [removal_of_field(text, field)]
    changes = [TextChange(items.items[0].start, kept[0].start, "")] if items.items[0].start in starts else []
    last_kept = last_gone = None
    for each in items.items:
        if each.start in starts:
            last_gone = each
            continue
        if last_kept is not None and last_gone is not None:
            changes.append(TextChange(last_kept.end, last_gone.end, ""))
        last_kept, last_gone = each, None
    if last_kept is not None and last_gone is not None:
        changes.append(TextChange(last_kept.end, last_gone.end, ""))
    return changes
