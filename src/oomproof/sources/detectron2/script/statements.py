"""Statements of a followed script, in order. Where a condition is not known, both ways are followed and joined."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import (
    changing,
    choosing,
    config_steps,
    decorating,
    elsewhere,
    importing,
    items,
    looking_up,
    loops,
    operators,
    replacing,
    training_steps,
    with_blocks,
)
from oomproof.sources.detectron2.script.both_ways import Ended, Outcome, ScriptEnds
from oomproof.sources.detectron2.script.contents import (
    Call,
    Class,
    Content,
    Foreign,
    Function,
    Items,
    Parts,
    Ref,
    Run,
    Section,
    Unknown,
)
from oomproof.sources.detectron2.script.joining import join_memories
from oomproof.sources.detectron2.script.knowing import NotKnown, iterate_value, require_known, shorten_code, truth

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader


def follow_statements(reader: Reader, body: list[ast.stmt], scope: Ref) -> Outcome:
    for statement in body:
        reader.count()
        outcome = _follow_one(reader, statement, scope)
        if outcome is not None:
            return outcome
    return None


def _follow_one(reader: Reader, node: ast.stmt, scope: Ref) -> Outcome:
    way = _WAYS.get(type(node))
    if way is not None:
        return way(reader, node, scope)
    if isinstance(node, ast.Raise):
        raise ScriptEnds
    if isinstance(node, (ast.Break, ast.Continue)):
        return Ended(how=type(node).__name__.lower())
    _plain(reader, node, scope)
    return None


def _return(reader: Reader, node: ast.Return, scope: Ref) -> Outcome:
    return Ended(reader.evaluate(node.value, scope) if node.value else None)


def _plain(reader: Reader, node: ast.stmt, scope: Ref) -> None:
    match node:
        case ast.Assign():
            value = reader.evaluate(node.value, scope)
            for target in node.targets:
                assign(reader, target, value, node.value, scope)
        case ast.AnnAssign(value=ast.expr() as value):
            assign(reader, node.target, reader.evaluate(value, scope), value, scope)
        case ast.AugAssign():
            changing.change_in_place(reader, node, scope)
        case ast.Delete():
            for target in node.targets:
                changing.delete(reader, target, scope)
        case ast.Expr():
            reader.evaluate(node.value, scope)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            reader.set_name(node.name, decorating.define_function(reader, node, scope), scope)
        case ast.ClassDef():
            reader.set_name(node.name, decorating.define_class(reader, node, scope), scope)
        case ast.Import() | ast.ImportFrom():
            importing.bind_imports(reader, node, scope)
        case ast.Global() | ast.Nonlocal():
            content, how = reader.memory[scope], f"<{type(node).__name__.lower()}>"
            if isinstance(content, Parts):
                declared = {**content.parts, how: (*content.parts.get(how, ()), *node.names)}
                reader.memory[scope] = replace(content, parts=declared)


def assign(reader: Reader, target: ast.expr, value: Any, node: ast.expr, scope: Ref) -> None:
    match target:
        case ast.Name():
            reader.set_name(target.id, value, scope)
        case ast.Attribute():
            set_attribute(reader, reader.evaluate(target.value, scope), target.attr, value, node)
        case ast.Subscript():
            items.set_item(reader, target, value, node, scope)
        case ast.Tuple() | ast.List():
            values = _lay_out(reader, target.elts, iterate_value(reader, value))
            for place, each in enumerate(target.elts):
                inner = each.value if isinstance(each, ast.Starred) else each
                assign(reader, inner, values[place] if values else Unknown(shorten_code(node)), node, scope)


def _lay_out(reader: Reader, targets: list[ast.expr], items: list[Any] | None) -> list[Any]:
    """One value for each target, a list for one with a star; nothing where they do not fit."""
    stars = [place for place, each in enumerate(targets) if isinstance(each, ast.Starred)]
    if items is None or len(stars) > 1 or len(items) < len(targets) - len(stars):
        return []
    if not stars:
        return items if len(items) == len(targets) else []
    before, after = stars[0], len(items) - (len(targets) - stars[0] - 1)
    return [*items[:before], reader.memory.new(Items(tuple(items[before:after]))), *items[after:]]


def set_attribute(reader: Reader, of: Any, name: str, value: Any, node: ast.AST) -> None:
    if isinstance(of, Section):
        config_steps.set_key(reader, of, name, value, node)
        return
    held = looking_up.find_method(reader, of, name)
    if isinstance(held, Function) and held.setter is not None:
        reader.call(held.setter, Call((of, value), {}, node))
        return
    if operators.call_own_method(reader, held, "__set__", (of, value), node):
        return
    if operators.call_own_method(reader, of, "__setattr__", (name, value), node):
        value = Unknown(f"__setattr__ of {name}")
    match reader.memory.get(of):
        case Parts() as content:
            reader.memory[of] = replace(content, parts={**content.parts, name: value})
        case Class() as content:
            reader.memory[of] = replace(content, attributes={**content.attributes, name: value})
        case Run():
            training_steps.set_attribute(reader, of, name, value)
        case _:
            elsewhere.set_key(reader, of, name, node)
    if isinstance(of, Foreign):
        replacing.note(reader, of, name, value, node)
    if isinstance(of, Unknown):
        choosing.set_on_choices(reader, of, lambda each: set_attribute(reader, each, name, value, node))


def _if(reader: Reader, node: ast.If, scope: Ref) -> Outcome:
    try:
        holds = truth(reader, reader.evaluate(node.test, scope))
    except NotKnown:
        return reader.either(
            f"«{shorten_code(node.test)}»",
            lambda: follow_statements(reader, node.body, scope),
            lambda: follow_statements(reader, node.orelse, scope),
        )
    return follow_statements(reader, node.body if holds else node.orelse, scope)


def _try(reader: Reader, node: ast.Try, scope: Ref) -> Outcome:
    """The body as it should go, or its handlers, where they have something else to say."""

    raised: list[dict[int, Content]] = []

    def body() -> Outcome:
        try:
            return follow_statements(reader, [*node.body, *node.orelse], scope)
        except ScriptEnds:
            raised.append(reader.memory.contents)
            raise

    def handlers() -> Outcome:
        if raised:  # the block ends by an exception: what it did before is done
            reader.memory.contents = join_memories(raised[0], reader.memory.contents, "an exception")
        for handler in node.handlers:
            outcome = follow_statements(reader, handler.body, scope)
            if outcome is not None:
                return outcome
        return None

    returned = reader.returns[-1] if reader.returns else []
    known = len(returned)
    goes_well = not node.handlers or importing.is_of_frameworks(node.body)
    outcome = body() if goes_well else reader.either("an exception", body, handlers)
    _finally_of_returns(reader, node, scope, returned, known)
    return follow_statements(reader, node.finalbody, scope) or outcome


def _finally_of_returns(reader: Reader, node: ast.Try, scope: Ref, returned: list[Any], known: int) -> None:
    """``finally`` is run by those ways too that have returned in the block already."""
    now = reader.memory.contents
    for place in range(known, len(returned) if node.finalbody else 0):
        value, contents, why = returned[place]
        reader.memory.contents = dict(contents)
        outcome = follow_statements(reader, node.finalbody, scope)
        value = outcome.value if outcome is not None and outcome.how == "return" else value
        returned[place] = (value, reader.memory.contents, why)
    reader.memory.contents = now


def _match(reader: Reader, node: ast.Match, scope: Ref) -> Outcome:
    """Cases of literals are decided; of others, each may be taken."""
    try:
        subject = require_known(reader, reader.evaluate(node.subject, scope))
        for case in node.cases:
            if case.guard is not None or not _is_literal(case.pattern):
                raise NotKnown("a pattern")
            literal = case.pattern.value if isinstance(case.pattern, ast.MatchValue) else None  # None: case _
            if literal is None or require_known(reader, reader.evaluate(literal, scope)) == subject:
                return follow_statements(reader, case.body, scope)
        return None
    except NotKnown:
        return _any_case(reader, node.cases, scope, f"«{shorten_code(node.subject)}»")


def _is_literal(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchValue) or (isinstance(pattern, ast.MatchAs) and pattern.pattern is None)


def _any_case(reader: Reader, cases: list[ast.match_case], scope: Ref, why: str) -> Outcome:
    if not cases:
        return None
    return reader.either(
        why, lambda: follow_statements(reader, cases[0].body, scope), lambda: _any_case(reader, cases[1:], scope, why)
    )


_WAYS: dict[type[ast.stmt], Callable[[Any, Any, Ref], Outcome]] = {
    ast.Return: _return,
    ast.If: _if,
    ast.For: loops.follow_for,
    ast.AsyncFor: loops.follow_for,
    ast.While: loops.follow_while,
    ast.With: with_blocks.follow_with,
    ast.AsyncWith: with_blocks.follow_with,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.Match: _match,
}
"""statements with blocks in them, and those that leave one"""
