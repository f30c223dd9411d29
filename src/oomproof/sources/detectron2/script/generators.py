"""Generator functions of a followed script: what they yield is a list, and what they do they may do, or not yet."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.contents import Function, Items, Unknown
from oomproof.sources.detectron2.script.knowing import LONGEST, iterate_value, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Yields:
    """What one call of a generator yields; not known where a branch that may be taken yields."""

    def __init__(self, forks: int) -> None:
        self.forks, self.values, self.known = forks, list[Any](), True

    def add(self, values: list[Any] | None, forks: int) -> None:
        self.known = self.known and values is not None and forks == self.forks and len(self.values) <= LONGEST
        self.values += values or []


@cache
def is_generator(node: ast.AST) -> bool:
    return any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in _inside(node))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, _OWN_SCOPE):
            yield each
            yield from _inside(each)


def run_generator(reader: Reader, function: Function, body: Callable[[], Any]) -> Any:
    """How far it runs, and when, is up to whoever takes from it."""
    yields, name = Yields(reader.forks + 1), getattr(function.node, "name", "a generator")
    around, reader.yields = reader.yields, yields
    try:
        reader.either_value(f"how far {name} runs", body, lambda: None)
    finally:
        reader.yields = around
    return reader.memory.new(Items(tuple(yields.values))) if yields.known else Unknown(name)


def yield_value(reader: Reader, value: Any, node: ast.Yield) -> Any:
    if reader.block is not None:
        reader.block.run(reader, value)
    elif reader.yields is not None:
        reader.yields.add([value], reader.forks)
    return Unknown(shorten_code(node))


def yield_all(reader: Reader, value: Any, node: ast.YieldFrom) -> Any:
    if reader.yields is not None:
        reader.yields.add(iterate_value(reader, value), reader.forks)
    return Unknown(shorten_code(node))
