"""Values of a pipeline.config set, added and removed by changes to its text; what is not changed stays, to the blank.

Every function gives changes: stretches of the text and what to put there instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.data import check_data, check_item, write_fields, write_message
from oomproof.sources.tf_object_detection.config.gaps import TextChange, gap_behind, removal_of_field, removal_of_items
from oomproof.sources.tf_object_detection.config.literals import write_literal
from oomproof.sources.tf_object_detection.config.paths import PathPart, find_entry
from oomproof.sources.tf_object_detection.config.reading import ConfigReading, Leaf, MessageSection, plain_entry
from oomproof.sources.tf_object_detection.config.schema import FieldType
from oomproof.sources.tf_object_detection.config.style import Style, begins_line, indent_at, style_of
from oomproof.sources.tf_object_detection.config.text_file import Field, ListValue, Message


@dataclass(frozen=True)
class Editor:
    """A text that was read without a problem, and how it is written."""

    text: str
    root: MessageSection
    style: Style


def editor_of(text: str, reading: ConfigReading) -> Editor:
    return Editor(text, reading.root, style_of(text, reading.root.places[0]))


def apply_changes(text: str, changes: list[TextChange]) -> str:
    """The text with all changes, which must not overlap."""
    pieces, at = [], 0
    for change in sorted(changes, key=lambda each: (each.start, each.end)):
        assert change.start >= at, "changes overlap"
        pieces += [text[at : change.start], change.new]
        at = change.end
    return "".join([*pieces, text[at:]])


def set_path(editor: Editor, steps: tuple[PathPart, ...], value: Any, path: str) -> list[TextChange]:
    """Changes after which the field at the path has the value; messages on the way are added where missing."""
    last = steps[-1]
    single = last.index is not None or not last.field.is_repeated
    data = check_item(value, last.field, path) if single else check_data(value, last.field, path)
    section = editor.root
    for number, step in enumerate(steps[:-1]):
        found = find_entry(section, step)
        if found is None:
            return _add(editor, section, step, _wrap(steps[number + 1 :], data, path), path)
        assert isinstance(found, MessageSection)
        section = found
    if not single:
        return _set_list(editor, section, last.field, data)
    found = find_entry(section, last)
    if found is None:
        return _add(editor, section, last, data, path)
    assert not isinstance(found, list)
    return _replace(editor, found, last.field, data)


def remove_path(editor: Editor, steps: tuple[PathPart, ...]) -> list[TextChange]:
    """Changes after which the field, or one item of it, is not set; none if it is not."""
    section = editor.root
    for step in steps[:-1]:
        found = find_entry(section, step)
        if found is None:
            return []
        assert isinstance(found, MessageSection)
        section = found
    last = steps[-1]
    found = find_entry(section, last)
    if found is None:
        return []
    if last.index is not None:
        assert not isinstance(found, list)
        return _remove_items(editor, [found])
    # What another occurrence or another member of the oneof had said before would count again, so it goes too.
    names = {last.field.name, *section.type.oneof_members(last.field.oneof)}
    return [removal_of_field(editor.text, each) for each in _occurrences(section, names)]


def _wrap(steps: tuple[PathPart, ...], data: Any, path: str) -> dict[str, Any]:
    """Data at the end of a path as the message that the path begins in."""
    for step in reversed(steps):
        if step.index:
            raise InputError(f"{path}: {step.field.name} has no item yet; begin with {step.field.name}[0]")
        data = {step.field.name: (data,) if step.index is not None else data}
    return dict(data)


def _add(editor: Editor, section: MessageSection, step: PathPart, data: Any, path: str) -> list[TextChange]:
    """A field that is not set, or one more item of a repeated field."""
    field = step.field
    if step.index is not None:
        there = section.entries.get(field.name, [])
        assert isinstance(there, list)
        if step.index != len(there):
            raise InputError(f"{path}: {field.name} has {len(there)} item(s); the next would be [{len(there)}]")
        return _append(editor, section, field, (data,))
    others = _occurrences(section, set(section.type.oneof_members(field.oneof)))
    if others:
        return _switch(editor, others, field, data)
    return _append(editor, section, field, (data,) if field.is_repeated else data)


def _switch(editor: Editor, others: list[Field], field: FieldType, data: Any) -> list[TextChange]:
    """A member of a oneof in the place of the last one there; the ones before it, dead already, go."""
    old = others[-1]
    long = "\n" in editor.text[old.start : old.end] or not isinstance(old.value, Message)
    indent = indent_at(editor.text, old.start) if long and begins_line(editor.text, old.start) else None
    new = write_fields(field, data, editor.style, indent)[0]
    removed = [removal_of_field(editor.text, each) for each in others[:-1]]
    return [*removed, TextChange(old.start, old.end, new)]


def _append(editor: Editor, section: MessageSection, field: FieldType, data: Any) -> list[TextChange]:
    there = section.entries.get(field.name, [])
    last = there[-1] if isinstance(there, list) and there else None
    if last is not None and _origin_items(last) is not None:
        end = last.at.end if isinstance(last, Leaf) else last.places[-1].end
        return [TextChange(end, end, "".join(f", {_write_item(editor, field, each)}" for each in data))]
    behind = _origin_field(last) if last is not None else None
    gap = gap_behind(editor.text, section, behind, editor.style)
    return [gap.change(write_fields(field, data, editor.style, gap.indent))]


def _set_list(editor: Editor, section: MessageSection, field: FieldType, data: tuple[Any, ...]) -> list[TextChange]:
    """The items that stay are changed where they stand; more are added behind them, or the last removed."""
    there = section.entries.get(field.name, [])
    assert isinstance(there, list)
    changes = []
    for entry, value in zip(there, data, strict=False):
        changes += _replace(editor, entry, field, value)
    if len(data) > len(there):
        changes += _append(editor, section, field, data[len(there) :])
    elif len(data) < len(there):
        changes += _remove_items(editor, there[len(data) :])
    return changes


def _replace(editor: Editor, entry: Leaf | MessageSection, field: FieldType, data: Any) -> list[TextChange]:
    if plain_entry(entry) == data:
        return []
    if isinstance(entry, Leaf):
        quote = editor.text[entry.at.start]
        return [TextChange(entry.at.start, entry.at.end, write_literal(data, field, quote if quote in "'\"" else '"'))]
    place = entry.places[-1]
    assert isinstance(data, Mapping)
    long = "\n" in editor.text[place.start : place.end]
    new = write_message(field, data, editor.style, indent_at(editor.text, place.start) if long else None)
    new = f"{editor.text[place.start]}{new[1:-1]}{editor.text[place.end - 1]}"
    earlier = [removal_of_field(editor.text, each.field) for each in entry.origins[:-1]]
    return [*earlier, TextChange(place.start, place.end, new)]


def _write_item(editor: Editor, field: FieldType, value: Any) -> str:
    """An item as it stands in a list."""
    if field.message is None:
        return write_literal(value, field)
    return write_message(field, value, editor.style, None)


def _remove_items(editor: Editor, entries: list[Leaf | MessageSection]) -> list[TextChange]:
    changes = []
    lists: dict[int, tuple[Field, ListValue, set[int]]] = {}
    for entry in entries:
        items, field = _origin_items(entry), _origin_field(entry)
        if items is None:
            changes.append(removal_of_field(editor.text, field))
        else:
            start = entry.at.start if isinstance(entry, Leaf) else entry.places[-1].start
            lists.setdefault(items.start, (field, items, set()))[2].add(start)
    for field, items, starts in lists.values():
        changes += removal_of_items(editor.text, field, items, starts)
    return changes


def _occurrences(section: MessageSection, names: set[str]) -> list[Field]:
    """The fields of the text with one of the names, in all places of a section, in order."""
    return [each for place in section.places for each in place.fields if each.name in names]


def _origin_field(entry: Leaf | MessageSection) -> Field:
    return entry.origin.field if isinstance(entry, Leaf) else entry.origins[-1].field


def _origin_items(entry: Leaf | MessageSection) -> ListValue | None:
    return entry.origin.items if isinstance(entry, Leaf) else entry.origins[-1].items
