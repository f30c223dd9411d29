"""Loops of a followed script: run through where it is known over what, else run perhaps."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.both_ways import Exit, Outcome, leave_by_exits
from oomproof.sources.detectron2.script.contents import Ref, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, iterate_value, shorten_code, truth

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_MOST_ROUNDS = 64
_PERHAPS = 3
"""rounds of a loop over what nobody knows: the first sees what was before, the second what one leaves, and the third
what both of these did together"""

_Loop = ast.For | ast.AsyncFor | ast.While


def follow_for(reader: Reader, node: ast.For | ast.AsyncFor, scope: Ref) -> Outcome:
    items = iterate_value(reader, reader.evaluate(node.iter, scope))
    left = _Left()
    if items is None or len(items) > _MOST_ROUNDS:
        return _perhaps(reader, node, Unknown(shorten_code(node.iter)), scope, left)
    for item in items:
        reader.assign(node.target, item, node.iter, scope)
        outcome = _round(reader, node, scope, left)
        if outcome is not None:
            return left.end(reader, outcome)
    return left.end(reader, reader.follow(node.orelse, scope))


def follow_while(reader: Reader, node: ast.While, scope: Ref) -> Outcome:
    left = _Left()
    for _ in range(_MOST_ROUNDS):
        try:
            holds = truth(reader, reader.evaluate(node.test, scope))
        except NotKnown:
            break
        if not holds:
            return left.end(reader, reader.follow(node.orelse, scope))
        outcome = _round(reader, node, scope, left)
        if outcome is not None:
            return left.end(reader, outcome)
    return _perhaps(reader, node, None, scope, left)


class _Left:
    """What a loop's ``break`` leaves behind, where it is not known whether it is met."""

    def __init__(self) -> None:
        self.ways: list[Exit] = []

    def end(self, reader: Reader, outcome: Outcome) -> Outcome:
        """The loop is over, by its end, a ``break`` or a ``return``; or it was over before, by one of these ways."""
        ended = None if outcome is not None and outcome.how == "break" else outcome
        return leave_by_exits(reader, ended, self.ways)


def _round(reader: Reader, node: _Loop, scope: Ref, left: _Left) -> Outcome:
    """One round; None where another may follow."""
    reader.exits.append([])
    try:
        outcome = reader.follow(node.body, scope)
    finally:
        exits = reader.exits.pop()
    left.ways += [each for each in exits if each.how == "break"]
    if outcome is not None and outcome.how == "continue":
        outcome = None
    return leave_by_exits(reader, outcome, [each for each in exits if each.how == "continue"])


def _perhaps(reader: Reader, node: _Loop, item: Any, scope: Ref, left: _Left) -> Outcome:
    """A loop that may run any number of times. What one round leaves may be more than the round before saw, so several
    are followed, each of them perhaps."""

    def once() -> Outcome:
        if not isinstance(node, ast.While):
            reader.assign(node.target, item, node.iter, scope)
        outcome = _round(reader, node, scope, left)
        return outcome if outcome is not None and outcome.how == "return" else None

    text = shorten_code(node.test if isinstance(node, ast.While) else node.iter)
    for _ in range(_PERHAPS):
        outcome = reader.either(f"the loop over «{text}»", once, lambda: None)
        if outcome is not None:
            return left.end(reader, outcome)
    return left.end(reader, None)
