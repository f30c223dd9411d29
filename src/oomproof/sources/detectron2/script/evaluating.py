"""Expressions of a followed script: their value as far as the code alone tells, after what their calls do."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import comprehending, copying, generators, looking_up, of_python, operators
from oomproof.sources.detectron2.script.choosing import find_configs, one_of, parts_of
from oomproof.sources.detectron2.script.computing import compute, first_that_decides
from oomproof.sources.detectron2.script.contents import MOST_PARTS, Items, Parts, Ref, Section, Unknown
from oomproof.sources.detectron2.script.expression import has_more_parts
from oomproof.sources.detectron2.script.knowing import (
    FAILURES,
    LONGEST,
    NotKnown,
    iterate_value,
    require_known,
    shorten_code,
    truth,
)

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

Way = Callable[[Any, Any, Ref], Any]


def evaluate_node(reader: Reader, node: ast.expr, scope: Ref) -> Any:
    reader.count()
    way: Way = _WAYS.get(type(node), compute)
    found = way(reader, node, scope)
    is_new = isinstance(found, tuple) and not isinstance(node, ast.Name)
    return Unknown(shorten_code(node)) if is_new and has_more_parts(found, MOST_PARTS) else found


def _conditional(reader: Reader, node: ast.IfExp, scope: Ref) -> Any:
    try:
        holds = truth(reader, evaluate_node(reader, node.test, scope))
    except NotKnown:
        ways = (lambda: evaluate_node(reader, node.body, scope), lambda: evaluate_node(reader, node.orelse, scope))
        return reader.either_value(shorten_code(node.test), *ways)
    return evaluate_node(reader, node.body if holds else node.orelse, scope)


def _assign_named(reader: Reader, node: ast.NamedExpr, scope: Ref) -> Any:
    value = evaluate_node(reader, node.value, scope)
    reader.assign(node.target, value, node.value, scope)
    return value


def _list(reader: Reader, node: ast.List, scope: Ref) -> Any:
    if len(node.elts) > LONGEST:  # data, not settings
        return Unknown(shorten_code(ast.List(node.elts[:3])))
    return reader.memory.new(Items(tuple(_elements(reader, node.elts, scope))))


def _tuple(reader: Reader, node: ast.Tuple, scope: Ref) -> Any:
    return tuple(_elements(reader, node.elts, scope))


def _elements(reader: Reader, nodes: list[ast.expr], scope: Ref) -> list[Any]:
    found: list[Any] = []
    for each in nodes:
        if isinstance(each, ast.Starred):
            items = iterate_value(reader, evaluate_node(reader, each.value, scope))
            found += [Unknown(shorten_code(each.value))] if items is None else items
        else:
            found.append(evaluate_node(reader, each, scope))
    return found


def _dict(reader: Reader, node: ast.Dict, scope: Ref) -> Any:
    parts: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        found = evaluate_node(reader, value, scope)
        if key is None:
            content = reader.memory.get(found)
            if not isinstance(content, Parts):
                return Unknown(shorten_code(value))
            parts.update(content.parts)
            continue
        try:
            parts[require_known(reader, evaluate_node(reader, key, scope))] = found
        except (NotKnown, TypeError):
            return Unknown(shorten_code(node))
    return reader.memory.new(Parts("dict", parts))


def _comprehension(reader: Reader, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Ref) -> Any:
    found, why = comprehending.run_through(reader, node, [node.elt], scope)
    values = [value for (value,) in found]
    if why:
        return Unknown(why)
    return _make_set(reader, values, node) if isinstance(node, ast.SetComp) else reader.memory.new(Items(tuple(values)))


def _dict_comprehension(reader: Reader, node: ast.DictComp, scope: Ref) -> Any:
    found, why = comprehending.run_through(reader, node, [node.key, node.value], scope)
    try:
        return (
            Unknown(why)
            if why
            else reader.memory.new(Parts("dict", {require_known(reader, key): value for key, value in found}))
        )
    except (NotKnown, TypeError):
        return Unknown(shorten_code(node))


def _set(reader: Reader, node: ast.Set, scope: Ref) -> Any:
    return _make_set(reader, _elements(reader, node.elts[: LONGEST + 1], scope), node)


def _make_set(reader: Reader, values: list[Any], node: ast.expr) -> Any:
    made = copying.make_set(reader, values)
    return Unknown(shorten_code(node)) if made is None else made


def _attribute(reader: Reader, node: ast.Attribute, scope: Ref) -> Any:
    of = evaluate_node(reader, node.value, scope)
    content = reader.memory.get(of)
    if node.attr == "__dict__" and isinstance(content, Parts) and content.kind in ("object", "arguments"):
        return of_python.show_parts(reader, of, content)
    return looking_up.attribute(reader, of, node.attr)


def _item(reader: Reader, node: ast.Subscript, scope: Ref) -> Any:
    value = evaluate_node(reader, node.value, scope)
    try:
        if isinstance(node.slice, ast.Slice):
            return _slice(reader, value, node.slice, scope)
        return _at(reader, value, require_known(reader, evaluate_node(reader, node.slice, scope)))
    except NotKnown as reason:
        return one_of(str(reason) or shorten_code(node), [Unknown("", find_configs(value)), *parts_of(reader, value)])
    except FAILURES:
        return Unknown(shorten_code(node))


def _at(reader: Reader, value: Any, place: Any) -> Any:
    if isinstance(value, Section):
        return looking_up.attribute(reader, value, str(place))
    match reader.memory.get(value):
        case Items(items):
            return items[place]
        case Parts(kind="dict", parts=parts):
            return parts[place]
    if isinstance(value, (str, tuple, list, dict)):
        return value[place]
    if isinstance(value, Unknown):
        return looking_up.attribute(reader, value, str(place))
    if looking_up.find_class(reader, value) is not None:
        found = operators.call_own_method(reader, value, "__getitem__", (place,), ast.Constant(place))
        return found[0] if found else operators.look_up_item(reader, value, place)
    raise NotKnown


def _slice(reader: Reader, value: Any, node: ast.Slice, scope: Ref) -> Any:
    ends: list[Any] = [
        each and require_known(reader, evaluate_node(reader, each, scope))
        for each in (node.lower, node.upper, node.step)
    ]
    content = reader.memory.get(value)
    if isinstance(content, Items):
        return reader.memory.new(Items(content.items[slice(*ends)]))
    if isinstance(value, (str, tuple, list)):
        return value[slice(*ends)]
    raise NotKnown


def _yield(reader: Reader, node: ast.Yield, scope: Ref) -> Any:
    value = evaluate_node(reader, node.value, scope) if node.value is not None else None
    return generators.yield_value(reader, value, node)


def _yield_from(reader: Reader, node: ast.YieldFrom, scope: Ref) -> Any:
    return generators.yield_all(reader, evaluate_node(reader, node.value, scope), node)


_WAYS: dict[type[ast.expr], Way] = {
    ast.Yield: _yield,
    ast.YieldFrom: _yield_from,
    ast.Constant: lambda reader, node, scope: node.value,
    ast.Name: lambda reader, node, scope: looking_up.name(reader, node.id, scope),
    ast.Attribute: _attribute,
    ast.Subscript: _item,
    ast.Call: lambda reader, node, scope: reader.call_at(node, scope),
    ast.BoolOp: first_that_decides,
    ast.IfExp: _conditional,
    ast.Lambda: lambda reader, node, scope: reader.function(node, scope),
    ast.NamedExpr: _assign_named,
    ast.List: _list,
    ast.Set: _set,
    ast.Tuple: _tuple,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _dict_comprehension,
}
"""everything else is computed"""
