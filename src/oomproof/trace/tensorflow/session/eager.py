"""A training step that is not in a tf.function: the function around its tape is found, or it is told why not."""

from __future__ import annotations

import ast
import gc
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

_UPDATES = ("apply_gradients", "apply", "minimize", "assign_sub")
_Block = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(frozen=True)
class EagerStep:
    """A tape in the user's code, in whose function weights are updated."""

    function: FunctionType | None
    """None: it is not in a function that is one step, but in a loop"""
    arguments: tuple[Any, ...]
    names: dict[str, Any]


def find_eager_step(frame: FrameType) -> EagerStep | None:
    """The step around the line that runs in ``frame``; None where no weights are updated around it (Grad-CAM)."""
    tree = _tree_of(frame)
    if tree is None:
        return None
    path = list(_path_to(tree, frame.f_lineno))
    inside = next((place for place in range(len(path) - 1, -1, -1) if isinstance(path[place], _Block)), None)
    if inside is None:
        return None
    block, below = path[inside], path[inside + 1 :]
    loops = [each for each in below if isinstance(each, (ast.For, ast.While, ast.AsyncFor))]
    if not _updates(loops[-1] if loops else block):
        return None
    if loops or isinstance(block, ast.Module):
        return EagerStep(None, (), {})
    function = _function_of(frame)
    if function is None:
        return EagerStep(None, (), {})
    given = inspect.getargvalues(frame)
    positional = [given.locals[name] for name in given.args]
    more = given.locals[given.varargs] if given.varargs else ()
    named = given.locals[given.keywords] if given.keywords else {}
    return EagerStep(function, (*positional, *more), dict(named))


def _tree_of(frame: FrameType) -> ast.Module | None:
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    try:
        return ast.parse("".join(lines)) if lines else None
    except SyntaxError:  # the file was changed since
        return None


def _path_to(node: ast.AST, line: int) -> Iterator[ast.AST]:
    """The nodes around a line, the outermost first."""
    yield node
    for child in ast.iter_child_nodes(node):
        if getattr(child, "lineno", line + 1) <= line <= (getattr(child, "end_lineno", 0) or 0):
            yield from _path_to(child, line)
            return


def _updates(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _UPDATES
        for each in ast.walk(node)
    )


def _function_of(frame: FrameType) -> FunctionType | None:
    """The function that runs in a frame: of several that share its code, the one that holds the same values."""
    for each in gc.get_referrers(frame.f_code):
        if isinstance(each, FunctionType) and each.__code__ is frame.f_code:
            cells = zip(frame.f_code.co_freevars, each.__closure__ or (), strict=False)
            if all(frame.f_locals.get(name) is _content(cell) for name, cell in cells):
                return each
    return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
