"""``with`` blocks of a followed script: what is entered, what its ``as`` stands for, and what is done at the end."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import looking_up
from oomproof.sources.detectron2.script.both_ways import Outcome, ScriptEnds
from oomproof.sources.detectron2.script.contents import Call, Foreign, Function, Partial, Ref, Unknown
from oomproof.sources.detectron2.script.knowing import shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

GENERATORS = frozenset(("contextmanager", "asynccontextmanager"))
"""decorators of functions whose ``yield`` stands where the block is run"""

_SUPPRESSES = (Foreign("contextlib.suppress"), Foreign("suppress"))


class WithBlock:
    """The block of a ``with``, to be run where a function of the script yields to it."""

    def __init__(self, reader: Reader, node: ast.With | ast.AsyncWith, place: int, scope: Ref) -> None:
        self.node, self.place, self.scope, self.file = node, place, scope, reader.file
        self.around, self.returns, self.exits = reader.block, list(reader.returns), reader.exits
        self.outcome: Outcome = None
        self.runs = 0

    def run(self, reader: Reader, value: Any) -> None:
        """Runs the block among the names and loops around it, as if no function were between."""
        self.runs += 1
        inside = (reader.file, reader.block, reader.returns, reader.exits)
        reader.file, reader.block, reader.returns, reader.exits = self.file, self.around, self.returns, self.exits
        try:
            _name_it(reader, self.node.items[self.place], value, self.scope)
            self.outcome = _enter(reader, self.node, self.place + 1, self.scope)
        finally:
            reader.file, reader.block, reader.returns, reader.exits = inside


def follow_with(reader: Reader, node: ast.With | ast.AsyncWith, scope: Ref) -> Outcome:
    return _enter(reader, node, 0, scope)


def _enter(reader: Reader, node: ast.With | ast.AsyncWith, place: int, scope: Ref) -> Outcome:
    if place == len(node.items):
        return reader.follow(node.body, scope)
    item = node.items[place]
    code = item.context_expr
    if isinstance(code, ast.Call) and _is_generator(called := reader.evaluate(code.func, scope)):
        block = WithBlock(reader, node, place, scope)
        call = reader.arguments_at(code, scope)
        reader.block_to_come = block
        reader.call(called, call)
        if not block.runs:  # it yields where nobody can see
            reader.block_to_come = None
            block.run(reader, Unknown(shorten_code(code)))
        return block.outcome
    value = reader.evaluate(code, scope)
    if isinstance(code, ast.Call) and reader.evaluate(code.func, scope) in _SUPPRESSES:
        return reader.follow([_as_try(node, place)], scope)
    enter, leave = (looking_up.find_method(reader, value, name) for name in ("__enter__", "__exit__"))
    entered = isinstance(enter, Function)
    _name_it(reader, item, reader.call(enter, Call((value,), {}, code)) if entered else _itself(value, code), scope)
    try:
        outcome = _enter(reader, node, place + 1, scope)
    except ScriptEnds:
        raised = Unknown("an exception")
        hidden = isinstance(leave, Function) and reader.call(leave, Call((value, raised, raised, raised), {}, code))
        if hidden is not True:
            raise
        return None
    if isinstance(leave, Function):
        reader.call(leave, Call((value, None, None, None), {}, code))
    return outcome


def _as_try(node: ast.With | ast.AsyncWith, place: int) -> ast.stmt:
    """``with suppress(...)`` as the ``try`` that it stands for."""
    rest = node.items[place + 1 :]
    body: list[ast.stmt] = [ast.copy_location(ast.With(rest, node.body), node)] if rest else node.body
    handler = ast.ExceptHandler(None, None, [ast.copy_location(ast.Pass(), node)])
    return ast.copy_location(ast.Try(body, [ast.copy_location(handler, node)], [], []), node)


def _itself(value: Any, code: ast.expr) -> Any:
    """What other code gives for ``as`` is not known."""
    return value if isinstance(value, Unknown) else Unknown(shorten_code(code))


def _name_it(reader: Reader, item: ast.withitem, value: Any, scope: Ref) -> None:
    if item.optional_vars is not None:
        reader.assign(item.optional_vars, value, item.context_expr, scope)


def _is_generator(called: Any) -> bool:
    function = called.function if isinstance(called, Partial) else called
    return isinstance(function, Function) and bool(function.marks & GENERATORS)
