"""Protobuf's text format as a tree in which everything knows where it stands, so that nothing of the text is lost.

>>> root = parse("train_config { batch_size: 24  # all GPUs\\n }", "pipeline.config")
>>> root.fields[0].name, root.fields[0].value.fields[0].value.parts
('train_config', ('24',))

What a field may hold is not known here: that is the schema's part (``reading.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oomproof.errors import InputError
from oomproof.files.regular import NotAFile, open_regular
from oomproof.sources.tf_object_detection.config.tokens import Tokens, error_at, shorten

MOST_BYTES = 4 << 20
_MOST_VALUES = 20_000
"""fields and items of lists; the largest config that the API publishes has about 600"""
_DEEPEST = 64
"""messages within messages; a pipeline.config has at most nine"""
_CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, word or text. Texts that stand side by side are one value: ``parts`` has each as it is written."""

    parts: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Message:
    """Fields in braces, the braces included in ``start`` and ``end``; the whole file is one without braces."""

    fields: tuple[Field, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ListValue:
    """``[1, 2, 3]``: several values of one field."""

    items: tuple[Scalar | Message, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Field:
    """``name: value``. ``end`` is behind the value, ``full_end`` behind the comma or semicolon that may follow it."""

    name: str
    value: Scalar | Message | ListValue
    start: int
    end: int
    full_end: int
    has_colon: bool


def read_text(path: Path) -> str:
    """The text of a file, line ends as they are."""
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
    except NotAFile as error:
        raise InputError(f"{path} is {error.strerror}; expected a file such as pipeline.config") from None
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check its permissions") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} is larger than {MOST_BYTES >> 20} MiB, as no pipeline.config is; check the path")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not a text in UTF-8 (byte {error.start}); expected a pipeline.config in protobuf's text format"
        ) from None


def parse(text: str, name: str) -> Message:
    """The tree of a text; ``name`` is its name in errors."""
    if len(text) > MOST_BYTES:
        raise InputError(f"{name} is larger than {MOST_BYTES >> 20} MiB, as no pipeline.config is")
    if text.startswith("\ufeff"):
        raise InputError(
            f"{name}:1:1: the file begins with a byte-order mark, which protobuf refuses; save it as UTF-8 without"
        )
    return _Parser(text, name).file()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.tokens = Tokens(text, name)
        self.values = 0

    def file(self) -> Message:
        fields = []
        while self.tokens.ahead.kind != "end":
            fields.append(self.field(0))
        return Message(tuple(fields), 0, len(self.text))

    def field(self, depth: int) -> Field:
        start = self.tokens.ahead.start
        self.count(start)
        name = self.field_name()
        colon = self.tokens.take_mark(":")
        value: Scalar | Message | ListValue
        if self.tokens.take_mark("["):
            value = self.items(depth)
        elif colon is not None or self.at_message():
            value = self.value(depth)
        else:
            raise self.tokens.fail(f"':' or '{{' after {shorten(name)}")
        end = value.end
        self.tokens.take_mark(",", ";")
        return Field(name, value, start, end, self.tokens.last_end, colon is not None)

    def field_name(self) -> str:
        if self.tokens.take_mark("["):
            return self.extension_name()
        if self.tokens.ahead.kind not in ("name", "number"):
            raise self.tokens.fail("the name of a field")
        return self.tokens.take().text

    def extension_name(self) -> str:
        """``[some.extension]`` or ``[type.googleapis.com/some.Type]``, behind its bracket."""
        parts = []
        while not self.tokens.take_mark("]"):
            if self.tokens.ahead.kind not in ("name", "number") and self.tokens.ahead.text not in (".", "/"):
                raise self.tokens.fail("']' behind the name of an extension")
            parts.append(self.tokens.take().text)
        return f"[{''.join(parts)}]"

    def items(self, depth: int) -> ListValue:
        start = self.tokens.last_end - 1
        found: list[Scalar | Message] = []
        while not self.tokens.take_mark("]"):
            if found and not self.tokens.take_mark(","):
                raise self.tokens.fail("',' or ']' in a list")
            self.count(self.tokens.ahead.start)
            found.append(self.value(depth))
        return ListValue(tuple(found), start, self.tokens.last_end)

    def value(self, depth: int) -> Scalar | Message:
        if self.at_message():
            return self.message(depth + 1)
        token = self.tokens.ahead
        if token.kind in ("mark", "end"):
            raise self.tokens.fail("a value")
        self.tokens.take()
        parts = [token.text]
        while token.kind == "string" and self.tokens.ahead.kind == "string":
            parts.append(self.tokens.take().text)
            self.count(token.start)
        return Scalar(tuple(parts), token.start, self.tokens.last_end)

    def message(self, depth: int) -> Message:
        opening = self.tokens.take()
        if depth > _DEEPEST:
            raise error_at(
                self.text, self.name, opening.start, f"more than {_DEEPEST} messages within each other: no config has"
            )
        fields = []
        while not self.tokens.take_mark(_CLOSING[opening.text]):
            if self.tokens.ahead.kind == "end":
                line = self.text.count("\n", 0, opening.start) + 1
                raise self.tokens.fail(f"'{_CLOSING[opening.text]}' for the '{opening.text}' in line {line}")
            fields.append(self.field(depth))
        return Message(tuple(fields), opening.start, self.tokens.last_end)

    def at_message(self) -> bool:
        return self.tokens.ahead.kind == "mark" and self.tokens.ahead.text in _CLOSING

    def count(self, offset: int) -> None:
        self.values += 1
        if self.values > _MOST_VALUES:
            raise error_at(self.text, self.name, offset, f"more than {_MOST_VALUES} values: no pipeline.config has")
