"""Values of which several are possible: what is called or set on one of them may be called or set on each."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import arguments, looking_up
from oomproof.sources.detectron2.script.contents import (
    Call,
    Class,
    Foreign,
    Function,
    Items,
    Partial,
    Parts,
    Ref,
    Section,
    Unknown,
)
from oomproof.sources.detectron2.script.knowing import shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_MOST = 32
_STEPS = 250
"""that following one of several counts as: each has a memory of its own"""


def find_configs(value: Any) -> tuple[Ref, ...]:
    """The configs that a value may be."""
    return value.may_be if isinstance(value, Unknown) else (value.of,) if isinstance(value, Section) else ()


def find_choices(value: Any) -> tuple[Any, ...]:
    """The functions, classes and objects that a value may be."""
    if isinstance(value, Unknown):
        return value.choices
    return (value,) if isinstance(value, (Foreign, Function, Partial, Ref)) else ()


def one_of(why: str, values: Iterable[Any]) -> Unknown:
    """One of these, and nobody knows which."""
    every = list(values)
    configs = dict.fromkeys(ref for each in every for ref in find_configs(each))
    choices = [choice for each in every for choice in find_choices(each)]
    found = [each for place, each in enumerate(choices) if each not in choices[:place]]
    return Unknown(why, tuple(configs), tuple(found[:_MOST]))


def parts_of(reader: Reader, value: Any) -> list[Any]:
    """What may stand at a place of a list or dict that is not known."""
    match reader.memory.get(value):
        case Items(items):
            return list(items)
        case Parts(kind="dict", parts=parts):
            return list(parts.values())
        case Unknown(choices=choices):
            return list(choices)
    return list(value) if isinstance(value, tuple) else list(find_choices(value)) if isinstance(value, Unknown) else []


def lose_parts(reader: Reader, of: Any, value: Any, why: str) -> None:
    """``setattr(args, name, value)`` with a name that is not known: every attribute but methods may be that value."""
    content = reader.memory.get(of)
    if not isinstance(content, (Parts, Class)):
        return
    known = content.parts if isinstance(content, Parts) else content.attributes
    values = dict(known)
    if isinstance(content, Parts) and content.kind == "arguments":
        values = {**{name: arguments.argument(reader, content, name) for name in reader.arguments}, **values}
    for cls in looking_up.find_classes(reader, of):
        values = {**getattr(reader.memory[cls], "attributes", {}), **values}
    lost = {
        name: each if isinstance(each, Function) or name[:1] == "<" else one_of(f"{why}: {name}", [each, value])
        for name, each in values.items()
    }
    after = replace(content, parts=lost) if isinstance(content, Parts) else replace(content, attributes=lost)
    reader.memory[of] = after


def methods_of(reader: Reader, of: Any) -> list[Any]:
    """What ``getattr(of, name)`` may be, where the name is not known: its methods, and functions of a module."""
    content = reader.memory.get(of)
    names: dict[str, Any] = {}
    if isinstance(content, Parts) and content.kind == "scope":
        return list(content.parts.values())
    for cls in looking_up.find_classes(reader, of):
        names = {**getattr(reader.memory[cls], "attributes", {}), **names}
    plain = [name for name, value in names.items() if isinstance(value, Function) and not _runs_by_itself(name, value)]
    return [looking_up.attribute(reader, of, name) for name in plain]


def _runs_by_itself(name: str, value: Function) -> bool:
    return name.startswith("__") or bool(value.marks & looking_up.PROPERTIES)


def call_choices(reader: Reader, called: Any, call: Call) -> Any:
    """Each of them is called, perhaps."""
    if not isinstance(called, Unknown) or not called.choices:
        return Unknown(shorten_code(call.node) if isinstance(call.node, ast.Call) else "a call")
    return _take_each(reader, called, lambda choice: reader.call(choice, call), shorten_code(call.node))


def set_on_choices(reader: Reader, of: Unknown, change: Callable[[Any], None]) -> None:
    _take_each(reader, of, change, of.why)


def _take_each(reader: Reader, of: Unknown, way: Callable[[Any], Any], why: str) -> Any:
    found: Any = Unknown(why)
    for each in of.choices:
        reader.count(_STEPS)
        found = reader.either_value(of.why.strip("«»"), partial(way, each), partial(_keep, found))
    return found if isinstance(found, Unknown) else Unknown(why)


def _keep(value: Any) -> Any:
    return value
