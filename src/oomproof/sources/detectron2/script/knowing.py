"""Whether a value of a followed script is known, and what it is in plain Python."""

from __future__ import annotations

import ast
from itertools import count
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.contents import (
    MOST_PARTS,
    Class,
    Foreign,
    Function,
    Hook,
    Items,
    Mapper,
    Method,
    Partial,
    Parts,
    Ref,
    Section,
    Super,
    Unknown,
)

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

LONGEST = 1000
"""texts and lists that are longer are not worked out"""
FAILURES = (ValueError, KeyError, TypeError, ArithmeticError, IndexError, AttributeError)
"""what Python raises where an expression is wrong: the script would fail there"""
NOT_PLAIN = (Foreign, Function, Hook, Mapper, Method, Partial, Ref, Section, Super)


_MAY_BE_FALSE = frozenset(
    ("dict", "list", "tuple", "set", "str", "int", "float", "OrderedDict", "UserDict", "UserList", "CfgNode", "CN")
)


class NotKnown(Exception):
    """A value is needed that only a run can tell."""


def shorten_code(node: ast.AST) -> str:
    """The code of an expression, short enough for a message."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def require_known(reader: Reader, value: Any) -> Any:
    """The value as plain Python; raises NotKnown."""
    return _plain(reader, value, count())


def _plain(reader: Reader, value: Any, parts_before: count[int]) -> Any:
    if next(parts_before) > MOST_PARTS:
        raise NotKnown(f"a value of more than {MOST_PARTS} parts")
    match reader.memory.get(value):
        case Items(items):
            return [_plain(reader, each, parts_before) for each in items]
        case Parts(kind="dict", parts=parts):
            return {key: _plain(reader, each, parts_before) for key, each in parts.items()}
        case Unknown(why):
            raise NotKnown(why)
        case Class(node):
            raise NotKnown(node.name)
    if isinstance(value, tuple):
        return tuple(_plain(reader, each, parts_before) for each in value)
    _refuse_unknown(value)
    if isinstance(value, NOT_PLAIN):
        raise NotKnown(type(value).__name__.lower())
    return value


def truth(reader: Reader, value: Any) -> bool:
    """Whether a condition holds; raises NotKnown."""
    match reader.memory.get(value):
        case Items(items):
            return bool(items)
        case Parts(kind="dict", parts=parts):
            return bool(parts)
        case Unknown(why):
            raise NotKnown(why)
        case Parts(kind="object", above=Ref() as cls) if _answers_itself(reader, cls):
            raise NotKnown("whether an object is true")
    _refuse_unknown(value)
    return isinstance(value, NOT_PLAIN) or bool(value)


def _answers_itself(reader: Reader, cls: Any) -> bool:
    """Whether a class says of its objects that they are false, or may be empty."""
    if isinstance(cls, Foreign):
        return cls.last in _MAY_BE_FALSE
    content = reader.memory.get(cls)
    if not isinstance(content, Class):
        return isinstance(cls, Unknown)
    return bool({"__bool__", "__len__"} & content.attributes.keys()) or any(
        _answers_itself(reader, base) for base in content.bases
    )


def iterate_value(reader: Reader, value: Any) -> list[Any] | None:
    """What a loop over the value sees; None where that is not known."""
    match reader.memory.get(value):
        case Items(items):
            return list(items)
        case Parts(kind="dict", parts=parts):
            return list(parts)
    return list(value) if isinstance(value, (str, tuple, list)) and len(value) <= LONGEST else None


def as_value(reader: Reader, found: Any) -> Any:
    """A plain result as a value of the script: lists may change later."""
    return reader.memory.new(Items(tuple(found))) if isinstance(found, list) else found


def _refuse_unknown(value: Any) -> None:
    if isinstance(value, Unknown):
        raise NotKnown(value.why)
    if isinstance(value, Foreign):
        raise NotKnown(value.name)
