"""Plain Python values for fields: checked against the schema, and written as text in a file's style."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.literals import check_literal, describe_type, write_literal
from oomproof.sources.tf_object_detection.config.reading import describe_unknown_field
from oomproof.sources.tf_object_detection.config.schema import FieldType
from oomproof.sources.tf_object_detection.config.style import Style


def check_data(value: Any, field: FieldType, path: str) -> Any:
    """A value as the field keeps it: tuples for repeated fields, dictionaries for messages."""
    if field.is_repeated:
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{path} is repeated: expected a list of values, got {value!r}")
        return tuple(check_item(each, field, f"{path}[{number}]") for number, each in enumerate(value))
    return check_item(value, field, path)


def check_item(value: Any, field: FieldType, path: str) -> Any:
    """One value of a field, repeated or not."""
    if field.message is None:
        try:
            return check_literal(value, field)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from None
    if not isinstance(value, Mapping):
        raise InputError(f"{path}: expected {describe_type(field)} as a dictionary, got {value!r}")
    checked = {}
    chosen: dict[str, str] = {}
    for name, each in value.items():
        kind = field.message.fields.get(name)
        if kind is None:
            raise InputError(describe_unknown_field(str(name), field.message, f"{path}."))
        if kind.oneof and chosen.setdefault(kind.oneof, name) != name:
            raise InputError(f"{path} takes {chosen[kind.oneof]} or {name}, not both (oneof {kind.oneof})")
        inner = check_data(each, kind, f"{path}.{name}")
        if not (kind.is_repeated and not inner):
            checked[name] = inner
    return checked


def write_fields(field: FieldType, value: Any, style: Style, indent: str | None) -> list[str]:
    """Each occurrence of a field with its value; on one line where ``indent`` is None. The first is not indented."""
    values = value if field.is_repeated else (value,)
    return [_write_field(field, each, style, indent) for each in values]


def _write_field(field: FieldType, value: Any, style: Style, indent: str | None) -> str:
    if field.message is None:
        return f"{field.name}: {write_literal(value, field)}"
    return f"{field.name}{style.opening[:-1]}{write_message(field, value, style, indent)}"


def write_message(field: FieldType, value: Mapping[str, Any], style: Style, indent: str | None) -> str:
    """A message in its braces."""
    assert field.message is not None
    kinds = field.message.fields
    deeper = None if indent is None else indent + style.step
    inner = [text for name, each in value.items() for text in write_fields(kinds[name], each, style, deeper)]
    brace, closing = style.opening[-1], style.closing
    if indent is None:
        return f"{brace} {' '.join(inner)} {closing}" if inner else f"{brace}{closing}"
    lines = "".join(f"{deeper}{each}{style.newline}" for each in inner)
    return f"{brace}{style.newline}{lines}{indent}{closing}"
