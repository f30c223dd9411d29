"""Expressions of a script, with what is known put in: names, fields of configs, comparisons, choices, dictionaries."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

from oomproof.sources.detectron2.script.expression import has_more_parts, value_of

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right, ast.NotIn: lambda left, right: left not in right,
}  # fmt: skip


def _path(*parts: str) -> str:
    return str(PurePosixPath(*parts))


_CALLS: dict[str, Callable[..., Any]] = {
    "len": len, "max": max, "min": min, "str": str,
    "os.path.join": _path, "join": _path, "Path": _path, "pathlib.Path": _path, "PurePath": _path,
}  # fmt: skip
ARGUMENTS = ("args", "opt", "arguments", "flags")
"""what the arguments of a script are usually called"""
_PLAIN = (int, float, str, bool, type(None))
WRONG = (ValueError, KeyError, TypeError, ArithmeticError, IndexError)
"""what an expression raises that is not known, or that makes no sense"""
MOST_PARTS = 2000
_LONGEST_TEXT = 200_000


def read_dotted_name(node: ast.expr) -> str:
    """``cfg.SOLVER["STEPS"]`` as cfg.SOLVER.STEPS; empty for what is not a name."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            above = read_dotted_name(node.value)
            return f"{above}.{node.attr}" if above else ""
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            above = read_dotted_name(node.value)
            return f"{above}.{key}" if above else ""
    return ""


def length_of(name: str) -> str:
    """Under what name it is known how long a list is, of whose items not all are known."""
    return f"len({name})"


def as_literal(value: Any, at: ast.AST) -> ast.expr:
    """An expression for a value, in the place of another one. ValueError for what has none, or too long a one: values
    that double from line to line have billions of parts."""
    if has_more_parts(value, MOST_PARTS):
        raise ValueError("too many parts")
    return _literal(value, at)


def _literal(value: Any, at: ast.AST) -> ast.expr:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        raise ValueError("too long")
    if isinstance(value, (list, tuple)):
        items = [_literal(each, at) for each in value]
        made: ast.expr = ast.List(items, ast.Load()) if isinstance(value, list) else ast.Tuple(items, ast.Load())
    elif isinstance(value, _PLAIN):
        made = ast.Constant(value)
    else:
        raise ValueError(type(value).__name__)
    return ast.copy_location(made, at)


def fold(
    node: ast.expr,
    values: Mapping[str, Any],
    arguments: Mapping[str, Any],
    look_up: Callable[[ast.expr], tuple[bool, Any]],
    own: Collection[str] = (),
) -> ast.expr:
    """``node`` with all that is known in it as a literal. ``look_up``: what is known beside names. ``own``: names of
    functions that the script defines."""
    folded: ast.expr = _Fold(values, arguments, look_up, own).visit(ast.parse(ast.unparse(node), mode="eval").body)
    return folded


class _Fold(ast.NodeTransformer):
    def __init__(
        self,
        values: Mapping[str, Any],
        arguments: Mapping[str, Any],
        look_up: Callable[[ast.expr], tuple[bool, Any]],
        own: Collection[str],
    ) -> None:
        self.values, self.arguments, self.look_up, self.own = values, arguments, look_up, own

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr):
            known, value = self.look_up(node)
            if known:
                return self._replace(node, lambda: value)
        return super().visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        argument = isinstance(node.value, ast.Name) and node.value.id in ARGUMENTS
        if argument and self.arguments.get(node.attr) is not None:
            return self._replace(node, lambda: self.arguments[node.attr])
        return self._name(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if read_dotted_name(node) in self.values:
            return self._name(node)
        self.generic_visit(node)
        return self._replace(node, lambda: self._value(node.value)[self._value(node.slice)])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return self._replace(node, lambda: self._compare(node))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node

        def join() -> str:
            parts = [self._value(each) for each in (node.left, node.right)]
            if not all(isinstance(each, str) for each in parts):  # which only paths of pathlib are divided by
                raise ValueError("no path")
            return _path(*parts)

        return self._replace(node, join)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        is_and = isinstance(node.op, ast.And)

        def decide() -> Any:
            value: Any = is_and
            for each in node.values:  # the first that is not known leaves it open, unless one before it decides
                value = self._value(each)
                if bool(value) != is_and:
                    break
            return value

        return self._replace(node, decide)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return self._replace(node, lambda: self._value(node.body if self._value(node.test) else node.orelse))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        def join() -> str:
            parts = [each.value if isinstance(each, ast.FormattedValue) else each for each in node.values]
            plain = all(each.format_spec is None for each in node.values if isinstance(each, ast.FormattedValue))
            if not plain:
                raise ValueError("a format")
            return "".join(str(self._value(self.visit(each))) for each in parts)

        return self._replace(node, join)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = read_dotted_name(node.func)
        node.args = [self.visit(each) for each in node.args]
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr == "format" and not node.keywords:
            return self._replace(node, lambda: self._format(called.value, node.args))
        if name not in _CALLS or node.keywords or name in self.own:
            return node
        if name == "len" and len(node.args) == 1 and length_of(read_dotted_name(node.args[0])) in self.values:
            return self._replace(node, lambda: self.values[length_of(read_dotted_name(node.args[0]))])
        return self._replace(node, lambda: _CALLS[name](*(self._value(each) for each in node.args)))

    def _format(self, text: ast.expr, given: list[ast.expr]) -> str:
        """``"model.{}.num_classes".format(name)``; no format that reaches into what it is given."""
        form = self._value(text)
        if not isinstance(form, str) or form.replace("{}", "").count("{"):
            raise ValueError("a format")
        return form.format(*(self._value(each) for each in given))

    def _compare(self, node: ast.Compare) -> bool:
        left = self._value(node.left)
        for kind, each in zip(node.ops, node.comparators, strict=True):
            right = self._value(each)
            if not _COMPARISONS[type(kind)](left, right):
                return False
            left = right
        return True

    def _name(self, node: ast.expr) -> ast.AST:
        return self._replace(node, lambda: self.values[read_dotted_name(node)])

    def _value(self, node: ast.expr) -> Any:
        return value_of(node, self.values)

    def _replace(self, node: ast.expr, find: Callable[[], Any]) -> ast.AST:
        try:
            return as_literal(find(), node)
        except WRONG:
            return node
