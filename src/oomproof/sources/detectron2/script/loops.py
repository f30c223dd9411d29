"""Loops of a followed script: run through where it is known over what, else run perhaps."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.both_ways import Outcome
from oomproof.sources.detectron2.script.contents import Ref, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, iterate_value, shorten_code, truth

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_MOST_ROUNDS = 64


def follow_for(reader: Reader, node: ast.For | ast.AsyncFor, scope: Ref) -> Outcome:
    items = iterate_value(reader, reader.evaluate(node.iter, scope))
    if items is None or len(items) > _MOST_ROUNDS:
        return _perhaps(reader, node, Unknown(shorten_code(node.iter)), scope)
    for item in items:
        reader.assign(node.target, item, node.iter, scope)
        outcome = reader.follow(node.body, scope)
        if outcome is not None and outcome.how == "return":
            return outcome
        if outcome is not None and outcome.how == "break":
            return None
    return reader.follow(node.orelse, scope)


def _perhaps(reader: Reader, node: ast.For | ast.AsyncFor | ast.While, item: Any, scope: Ref) -> Outcome:
    """A loop that may run any number of times: not at all, or once and then with what that left."""

    def once() -> Outcome:
        if not isinstance(node, ast.While):
            reader.assign(node.target, item, node.iter, scope)
        outcome = reader.follow(node.body, scope)
        return outcome if outcome is not None and outcome.how == "return" else None

    text = shorten_code(node.test if isinstance(node, ast.While) else node.iter)
    return reader.either(f"the loop over «{text}»", once, lambda: None)


def follow_while(reader: Reader, node: ast.While, scope: Ref) -> Outcome:
    try:
        holds = truth(reader, reader.evaluate(node.test, scope))
    except NotKnown:
        return _perhaps(reader, node, None, scope)
    if not holds:
        return reader.follow(node.orelse, scope)
    outcome = reader.follow(node.body, scope)
    if outcome is not None:
        return outcome if outcome.how == "return" else None
    return _perhaps(reader, node, None, scope)
