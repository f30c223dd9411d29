"""Copies of lists, dicts and objects of a followed script, and sets, which are kept as lists without doubles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.contents import MOST_PARTS, Items, Parts, Ref, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, require_known

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_KINDS = ("dict", "object", "arguments")


def copy_value(reader: Reader, value: Any, *, deep: bool) -> Any:
    """``copy.copy`` and ``copy.deepcopy``: what is not changed in its place stands for its own copy."""
    return _copy(reader, value, {}, deep=deep)


def _copy(reader: Reader, value: Any, made: dict[Ref, Ref], *, deep: bool) -> Any:
    if isinstance(value, tuple) and deep:
        return tuple(_copy(reader, each, made, deep=True) for each in value)
    content = reader.memory.get(value)
    is_object = isinstance(content, Parts) and content.kind in _KINDS
    if not isinstance(value, Ref) or not (isinstance(content, Items) or is_object):
        return value
    if value in made:
        return made[value]
    if len(made) >= MOST_PARTS:
        return Unknown("a copy of too many parts")
    assert isinstance(content, (Items, Parts))
    if isinstance(content, Parts) and content.kind == "dict":
        content = replace(content, above=None)  # no longer the parts of an object
    made[value] = new = reader.memory.new(content)
    if deep and isinstance(content, Items):
        reader.memory[new] = Items(tuple(_copy(reader, each, made, deep=True) for each in content.items))
    elif deep and isinstance(content, Parts):
        parts = {name: _copy(reader, each, made, deep=True) for name, each in content.parts.items()}
        reader.memory[new] = replace(content, parts=parts)
    return new


def make_set(reader: Reader, values: list[Any]) -> Ref | None:
    """None where it is not known which of the values are the same."""
    try:
        known = {require_known(reader, each): each for each in values}
    except (NotKnown, TypeError):
        return None if len(values) > 1 else reader.memory.new(Items(tuple(values)))
    return reader.memory.new(Items(tuple(known.values())))
