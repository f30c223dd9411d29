"""Arithmetic, comparisons and texts of a followed script: worked out where all their parts are known."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import operators, sections
from oomproof.sources.detectron2.script.contents import Call, Foreign, Parts, Ref, Section, Unknown
from oomproof.sources.detectron2.script.expression import value_of
from oomproof.sources.detectron2.script.knowing import (
    FAILURES,
    LONGEST,
    NotKnown,
    as_value,
    require_known,
    shorten_code,
    truth,
)

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne, ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}  # fmt: skip


_FORMAT = re.compile(r"[<>=^]?[+ -]?0?\d{0,2}[,_]?(\.\d{1,2})?[bdeEfFgGosxX%]?")
"""of a value in a text, where it is short: ``{lr:.4f}``"""


def compute(reader: Reader, node: ast.expr, scope: Ref) -> Any:
    try:
        found = _compute(reader, node, scope)
    except NotKnown as reason:
        return Unknown(str(reason))
    except FAILURES:
        return Unknown(shorten_code(node))
    return as_value(reader, found)


def _compute(reader: Reader, node: ast.expr, scope: Ref) -> Any:
    match node:
        case ast.BinOp():
            return _combine(reader, node, scope)
        case ast.UnaryOp(op=ast.Not()):
            return not truth(reader, reader.evaluate(node.operand, scope))
        case ast.UnaryOp():
            operand = require_known(reader, reader.evaluate(node.operand, scope))
            return value_of(ast.UnaryOp(node.op, ast.Name("one")), {"one": operand})
        case ast.Compare():
            return _compare(reader, node, scope)
        case ast.JoinedStr():
            return _join_text(reader, node, scope)
        case ast.Await():
            return reader.evaluate(node.value, scope)
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.expr):
            reader.evaluate(each, scope)  # what is called in it is called
    raise NotKnown(shorten_code(node))


def _combine(reader: Reader, node: ast.BinOp, scope: Ref) -> Any:
    one, other = (reader.evaluate(each, scope) for each in (node.left, node.right))
    dicts = [reader.memory.get(each) for each in (one, other)]
    if isinstance(node.op, ast.BitOr) and all(isinstance(each, Parts) and each.kind == "dict" for each in dicts):
        return reader.memory.new(Parts("dict", {key: part for each in dicts for key, part in each.parts.items()}))
    if found := operators.call_operator(reader, node, one, other):
        return found[0]
    left, right = (require_known(reader, each) for each in (one, other))
    if isinstance(node.op, ast.Div) and isinstance(left, PurePath):
        return left / str(right)
    # Within the bounds that expressions in a config have: nothing grows large here.
    return value_of(ast.BinOp(ast.Name("left"), node.op, ast.Name("right")), {"left": left, "right": right})


def _join_text(reader: Reader, node: ast.JoinedStr, scope: Ref) -> str:
    codes = [each.value if isinstance(each, ast.FormattedValue) else each for each in node.values]
    values = [reader.evaluate(each, scope) for each in codes]
    return "".join(_format_part(reader, *pair, scope) for pair in zip(node.values, values, strict=True))


def _format_part(reader: Reader, node: ast.expr, value: Any, scope: Ref) -> str:
    known = require_known(reader, value)
    if not isinstance(node, ast.FormattedValue) or (node.format_spec is None and node.conversion == -1):
        return str(known)[:LONGEST]
    form = reader.evaluate(node.format_spec, scope) if node.format_spec is not None else ""
    plain = isinstance(known, (str, int, float)) and node.conversion == -1
    if not plain or not isinstance(form, str) or not _FORMAT.fullmatch(form):
        raise NotKnown(shorten_code(node.value))
    return format(known, form)[:LONGEST]


def _compare(reader: Reader, node: ast.Compare, scope: Ref) -> bool:
    left = reader.evaluate(node.left, scope)
    for comparison, each in zip(node.ops, node.comparators, strict=True):
        right = reader.evaluate(each, scope)
        if not _holds(reader, comparison, left, right):
            return False
        left = right
    return True


def _holds(reader: Reader, comparison: ast.cmpop, left: Any, right: Any) -> bool:
    unsure = any(isinstance(each, (Unknown, Foreign)) for each in (left, right))
    if isinstance(comparison, (ast.Is, ast.IsNot)) and None in (left, right) and not unsure:
        return (left is right) is isinstance(comparison, ast.Is)  # nothing else is None
    if isinstance(right, Section) and isinstance(comparison, (ast.In, ast.NotIn)):
        right = sections.read_section(reader, right, "keys", Call((), {}, ast.Name("keys()")))
    return bool(_COMPARISONS[type(comparison)](require_known(reader, left), require_known(reader, right)))


def first_that_decides(reader: Reader, node: ast.BoolOp, scope: Ref) -> Any:
    """``args.batch or 4``"""
    value: Any = None
    for place, each in enumerate(node.values):
        value = reader.evaluate(each, scope)
        try:
            holds = truth(reader, value)
        except NotKnown as reason:
            return _perhaps_others(reader, node, place, (value, str(reason)), scope)
        if holds is isinstance(node.op, ast.Or):
            break
    return value


def _perhaps_others(reader: Reader, node: ast.BoolOp, place: int, found: tuple[Any, str], scope: Ref) -> Any:
    """``args.amp and cfg.merge_from_list([...])``: what stands behind may be run."""
    value, why = found
    others = ast.copy_location(ast.BoolOp(node.op, node.values[place + 1 :]), node)
    if not others.values:
        return value if isinstance(value, Unknown) else Unknown(why)
    either = reader.either_value(why, lambda: first_that_decides(reader, others, scope), lambda: value)
    return either if isinstance(either, Unknown) else Unknown(why)
