"""Arithmetic in a config, such as ``[[x, x * 2**(1.0/3)] for x in [32, 64]]``, worked out without running code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any

from oomproof.errors import InputError

_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_SIGNS: dict[type[ast.unaryop], Any] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_LARGEST = 1e9
_LONGEST = 1000
_DEEPEST = 2
_MOST_DIGITS = 64
_MOST_PARTS = 200_000
"""values and elements that one expression may make on its way"""


def round_number(number: Any, digits: Any = None) -> Any:
    """``round``, but not to a billion digits before the point, which Python would compute."""
    if digits is not None and not abs(digits) <= _MOST_DIGITS:
        raise ValueError("too many digits")
    return round(number, digits)


_CALLS: dict[str, Any] = {
    "int": int, "float": float, "round": round_number, "tuple": tuple, "list": list, "range": range,
}  # fmt: skip


def has_more_parts(value: Any, most: int) -> bool:
    """Than ``most``, with those of its parts. A list that holds the one before it twice, on each of thirty lines, has a
    billion, whatever Python keeps of it."""
    left, seen = [value], 0
    while left and seen <= most:
        each = left.pop()
        seen += 1
        if isinstance(each, (list, tuple)):
            left += each
    return seen > most


def evaluate_text(text: Any) -> Any:
    """Numbers, texts, lists, tuples, arithmetic and comprehensions over lists; anything else is refused."""
    try:
        return value_of(ast.parse(str(text), mode="eval").body, {})
    except (SyntaxError, ValueError, TypeError, ArithmeticError, KeyError, RecursionError, MemoryError):
        raise InputError(
            f"the config computes a value by '{str(text)[:80]}', which is not plain arithmetic; write the value itself"
        ) from None


def value_of(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of a syntax tree; raises ValueError or KeyError for what cannot be known from it alone."""
    if sum(isinstance(each, ast.ListComp) for each in ast.walk(node)) > _DEEPEST:
        raise ValueError("too deep")
    return _value(node, names, [_MOST_PARTS])


def _value(node: ast.expr, names: Mapping[str, Any], budget: list[int]) -> Any:
    _spend(budget, 1)
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.UnaryOp() if type(node.op) in _SIGNS:
            return _SIGNS[type(node.op)](_value(node.operand, names, budget))
        case ast.BinOp():
            return _combine(node, names, budget)
    return _collect_items(node, names, budget)


def _collect_items(node: ast.expr, names: Mapping[str, Any], budget: list[int]) -> Any:
    match node:
        case ast.List() | ast.Tuple():
            items = [_value(item, names, budget) for item in node.elts]
            return items if isinstance(node, ast.List) else tuple(items)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _CALLS and name not in names:
            given = [_value(each, names, budget) for each in node.args]
            made = _CALLS[name](*given)
            if isinstance(made, (range, list, tuple)):
                _spend(budget, len(_short(made)))
            return list(made) if isinstance(made, range) else made
        case ast.ListComp(generators=[ast.comprehension(target=ast.Name(id=name), ifs=[], is_async=0) as each]):
            return [
                _value(node.elt, {**names, name: item}, budget) for item in _short(_value(each.iter, names, budget))
            ]
    raise ValueError(ast.unparse(node))


def _combine(node: ast.BinOp, names: Mapping[str, Any], budget: list[int]) -> Any:
    left, right = _value(node.left, names, budget), _value(node.right, names, budget)
    numbers = all(isinstance(each, (int, float)) for each in (left, right))
    if numbers and not max(abs(left), abs(right)) <= _LARGEST:
        raise ValueError("too large")
    if isinstance(node.op, ast.Pow) and not (numbers and abs(right) <= 64):
        raise ValueError("too large")
    if not numbers and not isinstance(node.op, (ast.Add, ast.Mult)):
        raise ValueError("no arithmetic")
    if not numbers and isinstance(node.op, ast.Mult):
        repeats, parts = (left, right) if isinstance(left, int) else (right, left)
        if not isinstance(parts, (list, tuple)) or len(parts) * repeats > _LONGEST:
            raise ValueError("too long")
    made = _OPERATORS[type(node.op)](left, right)
    if isinstance(made, (str, bytes, list, tuple)):
        _spend(budget, len(made))
    return made


def _spend(budget: list[int], parts: int) -> None:
    budget[0] -= parts
    if budget[0] < 0:
        raise ValueError("too much to compute")


def _short(items: Any) -> Any:
    if not isinstance(items, (list, tuple, range)) or len(items) > _LONGEST:
        raise ValueError("too long")
    return items
