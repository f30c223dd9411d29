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

from oomproof.trace.tensorflow.session.loop_body import make_step

_UPDATES = ("apply_gradients", "apply", "minimize", "assign_sub")
_Block = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(frozen=True)
class EagerStep:
    """A tape in the user's code, in whose function weights are updated."""

    function: FunctionType | None
    """None: it is not in a function that is one step, and its part of a loop is none by itself"""
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
    around = next((each for each in reversed(loops) if _updates(each)), block)
    if not _updates(around):
        return None
    if loops or isinstance(block, ast.Module):
        made = make_step(_statements_at(around, frame.f_lineno), frame.f_lineno, frame, _updates)
        return EagerStep(None, (), {}) if made is None else EagerStep(*made, {})
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


def _statements_at(node: ast.AST, line: int) -> list[ast.stmt]:
    """The innermost list of statements around a line that has an update in it, of which no part is a loop."""
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]  # ast.AST has none; loops do
    inside = next((each for each in body if each.lineno <= line <= (each.end_lineno or 0)), None)
    if isinstance(inside, (ast.With, ast.If, ast.Try)) and not _opens_tape(inside) and _updates(inside):
        return _statements_at(inside, line)
    return body


def _opens_tape(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and any("GradientTape" in ast.unparse(item.context_expr) for item in node.items)


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
