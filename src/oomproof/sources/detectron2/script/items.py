"""``a[b] = c`` in a followed script: of configs, lists, dicts and objects."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import choosing, config_steps, elsewhere, methods, operators
from oomproof.sources.detectron2.script.contents import Items, Parts, Ref, Section, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, require_known, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader


def set_item(reader: Reader, target: ast.Subscript, value: Any, node: ast.expr, scope: Ref) -> None:
    of = reader.evaluate(target.value, scope)
    try:
        place = require_known(reader, reader.evaluate(target.slice, scope))
        _set_known(reader, of, place, value, (target, node))
    except (NotKnown, TypeError, IndexError):
        _lose_place(reader, of, value, target)


def _set_known(reader: Reader, of: Any, place: Any, value: Any, codes: tuple[ast.Subscript, ast.expr]) -> None:
    target, node = codes
    content = reader.memory.get(of)
    if isinstance(of, Section):
        config_steps.set_key(reader, of, str(place), value, node)
    elif operators.call_own_method(reader, of, "__setitem__", (place, value), target):
        return
    elif isinstance(content, Parts):
        where = operators.place_in(reader, of, place)
        methods.change_dict(reader, of, content, replace(content, parts={**content.parts, where: value}))
    elif isinstance(content, Items):
        items = list(content.items)
        items[place] = value
        reader.memory[of] = Items(tuple(items))
    elif isinstance(of, (list, dict)):
        elsewhere.change_value(reader, of, target)
    else:
        elsewhere.set_key(reader, of, str(place), node)


def _lose_place(reader: Reader, of: Any, value: Any, target: ast.Subscript) -> None:
    """It is not known where the value goes: any place may have it."""
    content, said = reader.memory.get(of), shorten_code(target)
    if isinstance(of, Section):
        config_steps.lose(reader, of, target)
    elif isinstance(content, Parts):
        methods.change_dict(reader, of, content, choosing.one_of(said, [*content.parts.values(), value]))
    elif isinstance(content, Items):
        reader.memory[of] = choosing.one_of(said, [*content.items, value])
    elif isinstance(content, Unknown):
        reader.memory[of] = choosing.one_of(content.why, [content, value])
    elif isinstance(of, Unknown):
        elsewhere.lose_any(reader, of, target)
    elif isinstance(of, (list, dict)):
        elsewhere.change_value(reader, of, target)
