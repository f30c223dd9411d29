"""Comprehensions of a followed script. Their elements are run, or may be, where their items are not known."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.contents import Parts, Ref, Unknown
from oomproof.sources.detectron2.script.knowing import LONGEST, NotKnown, iterate_value, shorten_code, truth

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp


class _Rounds:
    def __init__(self, reader: Reader, node: _Comprehension, codes: list[ast.expr], scope: Ref) -> None:
        self.reader, self.node, self.codes, self.scope = reader, node, codes, scope
        around = reader.memory[scope]
        in_class = isinstance(around, Parts) and around.kind == "class"  # whose names are not seen in it
        above = around.above if in_class and isinstance(around, Parts) else scope
        self.inner = reader.memory.new(Parts("scope", {}, above))
        self.found: list[tuple[Any, ...]] = []
        self.why = ""

    def run(self, depth: int = 0) -> None:
        if depth == len(self.node.generators):
            self.found.append(tuple(self.reader.evaluate(each, self.inner) for each in self.codes))
            return
        each = self.node.generators[depth]
        items = iterate_value(self.reader, self.reader.evaluate(each.iter, self.inner if depth else self.scope))
        if items is None or len(self.found) > LONGEST:
            self.why = self.why or shorten_code(each.iter)
            items = None
        for item in [Unknown(shorten_code(each.iter))] if items is None else items:
            self.reader.assign(each.target, item, each.iter, self.inner)
            if items is None:
                self._perhaps(depth, shorten_code(each.iter))
            else:
                self._take(depth, each.ifs)

    def _take(self, depth: int, tests: list[ast.expr]) -> None:
        try:
            holds = all(truth(self.reader, self.reader.evaluate(test, self.inner)) for test in tests)
        except NotKnown as reason:
            self.why = self.why or str(reason)
            self._perhaps(depth, str(reason))
        else:
            if holds:
                self.run(depth + 1)

    def _perhaps(self, depth: int, why: str) -> None:
        self.reader.either_value(why, lambda: self.run(depth + 1), lambda: None)


def run_through(
    reader: Reader, node: _Comprehension, codes: list[ast.expr], scope: Ref
) -> tuple[list[tuple[Any, ...]], str]:
    """The values of the codes in each round, and why the rounds are not all known; empty where they are."""
    rounds = _Rounds(reader, node, codes, scope)
    rounds.run()
    return rounds.found, rounds.why
