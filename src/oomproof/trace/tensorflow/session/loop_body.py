"""Makes a function of the part of a loop's body that is a training step: from its tape to its update.

What comes after the update (a loss that is printed, a count) wants numbers, and has no part in the step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from types import FrameType, FunctionType
from typing import Any

NAME = "step_of_the_loop"


def make_step(
    body: Sequence[ast.stmt], line: int, frame: FrameType, updates: Callable[[ast.AST], bool]
) -> tuple[FunctionType, tuple[Any, ...]] | None:
    """The function, and what to call it with: the tensors that the part reads and the names that it writes, as they are
    in ``frame`` now. None where it cannot be one: what is in it leaves or feeds the function around it."""
    chosen = _from_tape_to_update(body, line, updates)
    if not chosen or any(isinstance(each, _NOT_ALONE) for part in chosen for each in ast.walk(part)):
        return None
    read, written = _names(chosen, ast.Load), _names(chosen, ast.Store)
    known = {**frame.f_globals, **frame.f_locals}
    given = sorted(name for name in read if name in known and (name in written or _is_tensor(known[name])))
    # In a loop of one turn: `continue` and `break` may be in it.
    loop = ast.For(ast.Name("_", ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), list(chosen), [])
    module = ast.parse(f"def {NAME}({', '.join(given)}): pass")
    assert isinstance(module.body[0], ast.FunctionDef)
    module.body[0].body = [loop]
    ast.fix_missing_locations(module)
    namespace = dict(known)
    exec(compile(module, frame.f_code.co_filename, "exec"), namespace)
    return namespace[NAME], tuple(known[name] for name in given)


_NOT_ALONE = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal, ast.Global)


def _from_tape_to_update(body: Sequence[ast.stmt], line: int, updates: Callable[[ast.AST], bool]) -> Sequence[ast.stmt]:
    first = next((n for n, each in enumerate(body) if each.lineno <= line <= (each.end_lineno or 0)), None)
    last = max((n for n, each in enumerate(body) if updates(each)), default=None)
    return () if first is None or last is None else body[first : last + 1]


def _names(statements: Sequence[ast.stmt], use: type[ast.expr_context]) -> set[str]:
    nodes = [each for part in statements for each in ast.walk(part)]
    found = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, use)}
    changed = {
        each.target.id for each in nodes if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name)
    }
    return found | changed


def _is_tensor(value: Any) -> bool:
    """An array counts too: in a function it would be a constant."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not hasattr(value, "assign")
