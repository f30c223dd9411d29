"""A tree of text against the schema: what every field is set to, and everything that is wrong, in one run.

Values come about as in ``text_format.Merge``, by which the API reads its files: of a field that comes twice the last
counts, messages that come twice are merged, and a member of a oneof takes the place of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oomproof.errors import did_you_mean
from oomproof.sources.tf_object_detection.config.inventions import advice
from oomproof.sources.tf_object_detection.config.literals import describe_type, read_literal
from oomproof.sources.tf_object_detection.config.schema import ROOT, FieldType, MessageType, paths_of
from oomproof.sources.tf_object_detection.config.text_file import Field, ListValue, Message, Scalar
from oomproof.sources.tf_object_detection.config.tokens import shorten

_MOST_PROBLEMS = 50


@dataclass(frozen=True)
class FieldOrigin:
    """The field of the text that a value comes from, and the list, where it stands in one."""

    field: Field
    items: ListValue | None = None


@dataclass
class Leaf:
    """A single value, and where it stands."""

    value: Any
    at: Scalar
    origin: FieldOrigin


@dataclass
class MessageSection:
    """A message with what is set in it. It has several places where the text has it several times."""

    type: MessageType
    places: list[Message]
    origins: list[FieldOrigin] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)


Entry = Leaf | MessageSection | list[Leaf | MessageSection]


@dataclass(frozen=True)
class Fault:
    offset: int
    text: str


@dataclass(frozen=True)
class Overwritten:
    """A field of the text that another one takes the place of."""

    path: str
    offset: int
    by: int
    """offset of the field that counts"""


@dataclass
class ConfigReading:
    root: MessageSection
    problems: list[Fault] = field(default_factory=list)
    more_problems: int = 0
    """those beyond the first fifty"""
    overwritten: list[Overwritten] = field(default_factory=list)


def read_tree(tree: Message) -> ConfigReading:
    reading = ConfigReading(MessageSection(ROOT, [tree]))
    _Reader(reading).fill(reading.root, tree, "")
    return reading


class _Reader:
    def __init__(self, reading: ConfigReading) -> None:
        self.reading = reading

    def fill(self, section: MessageSection, message: Message, prefix: str) -> None:
        for each in message.fields:
            kind = section.type.fields.get(each.name)
            if kind is None:
                self.fail(each.start, lambda each=each: describe_unknown_field(each.name, section.type, prefix))
            elif isinstance(each.value, ListValue) and not kind.is_repeated:
                self.fail(each.value.start, lambda each=each: f"{prefix}{each.name} takes one value, not a list")
            elif kind.message is None and not each.has_colon:
                self.fail(each.start, lambda each=each: f"expected ':' after {prefix}{each.name}")
            else:
                self.set_field(section, each, kind, prefix)

    def set_field(self, section: MessageSection, text: Field, kind: FieldType, prefix: str) -> None:
        path = f"{prefix}{text.name}"
        for other in section.type.oneof_members(kind.oneof):
            if other != text.name and other in section.entries:
                old = section.entries.pop(other)
                self.reading.overwritten.append(Overwritten(f"{prefix}{other}", _first_start(old), text.start))
        if kind.is_repeated:
            listed = section.entries.setdefault(text.name, [])
            assert isinstance(listed, list)
            items = text.value if isinstance(text.value, ListValue) else None
            for value in items.items if items else (text.value,):
                assert not isinstance(value, ListValue)
                made = self.make(value, kind, FieldOrigin(text, items), f"{path}[{len(listed)}]", None)
                if made is not None:
                    listed.append(made)
            if not listed:
                del section.entries[text.name]
            return
        assert not isinstance(text.value, ListValue)
        before = section.entries.get(text.name)
        made = self.make(
            text.value, kind, FieldOrigin(text), path, before if isinstance(before, MessageSection) else None
        )
        if made is None:
            return
        if isinstance(before, Leaf):
            self.reading.overwritten.append(Overwritten(path, before.origin.field.start, text.start))
        section.entries[text.name] = made

    def make(
        self, value: Scalar | Message, kind: FieldType, origin: FieldOrigin, path: str, before: MessageSection | None
    ) -> Leaf | MessageSection | None:
        """The value of one occurrence; of a message that is there already (``before``), the two merged."""
        if (kind.message is not None) != isinstance(value, Message):
            got = "a message in braces" if isinstance(value, Message) else shorten(" ".join(value.parts))
            self.fail(value.start, lambda: f"{path}: expected {describe_type(kind)}, got {got}")
            return None
        if isinstance(value, Message):
            assert kind.message is not None
            section = before or MessageSection(kind.message, [])
            section.places.append(value)
            section.origins.append(origin)
            self.fill(section, value, f"{path}.")
            return section
        try:
            return Leaf(read_literal(value.parts, kind), value, origin)
        except ValueError as error:
            why = str(error)
            self.fail(value.start, lambda: f"{path}: {why}")
            return None

    def fail(self, offset: int, text: Any) -> None:
        """``text`` is called only if the problem is to be told: a damaged file can have thousands."""
        if len(self.reading.problems) < _MOST_PROBLEMS:
            self.reading.problems.append(Fault(offset, text()))
        else:
            self.reading.more_problems += 1


def describe_unknown_field(name: str, kind: MessageType, prefix: str) -> str:
    """What to say of a field that a message does not have; ``prefix`` is the message's path with its dot."""
    name = shorten(name)
    path = f"{prefix}{name}"
    if name.startswith("["):
        return f"{path} is an extension, which the API itself does not have; remove it"
    said = f"{path} does not exist: the API refuses the file"
    instead = advice(path)
    if instead:
        return f"{said}. {instead}"
    homes = paths_of(name)[:2]
    if homes:
        return f"{said}; did you mean {' or '.join(homes)}?"
    return said + did_you_mean(name, kind.fields, f"; {kind.name} has no field like it")


def plain_entry(entry: Entry) -> Any:
    """An entry as numbers, texts, tuples and dictionaries."""
    if isinstance(entry, Leaf):
        return entry.value
    if isinstance(entry, MessageSection):
        return {name: plain_entry(each) for name, each in entry.entries.items()}
    return tuple(plain_entry(each) for each in entry)


def _first_start(entry: Entry) -> int:
    if isinstance(entry, list):
        return _first_start(entry[0])
    return entry.origin.field.start if isinstance(entry, Leaf) else entry.origins[-1].field.start
