"""What names mean where: the arguments of a function's call, and what a loop gives another value."""

from __future__ import annotations

import ast

from oomproof.sources.tf_object_detection.script.folding import read_dotted_name


def bind_arguments(function: ast.FunctionDef, call: ast.Call | None) -> dict[str, ast.expr | None]:
    """By parameter: what a call gives it, or its default; None where neither says it. Without a call, defaults."""
    of = function.args
    positional = [each.arg for each in (*of.posonlyargs, *of.args)]
    found: dict[str, ast.expr | None] = dict.fromkeys([*positional, *(each.arg for each in of.kwonlyargs)])
    if of.defaults:
        found.update(zip(positional[-len(of.defaults) :], of.defaults, strict=True))
    found.update({each.arg: value for each, value in zip(of.kwonlyargs, of.kw_defaults, strict=True) if value})
    if positional[:1] in (["self"], ["cls"]):
        del found[positional.pop(0)]
    if call is None:
        return found
    spread = [each for each in call.args if isinstance(each, ast.Starred)]
    found.update(zip(positional, [] if spread else call.args, strict=False))
    found.update({each.arg: each.value for each in call.keywords if each.arg in found})
    if spread or any(each.arg is None for each in call.keywords):
        found.update(dict.fromkeys(found))
    return found


def assigned_names(loop: ast.For | ast.AsyncFor | ast.While) -> set[str]:
    """Names that have another value after a turn of a loop."""
    found: set[str] = set()
    for node in ast.walk(loop):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign():
                targets = node.targets
            case ast.AugAssign() | ast.AnnAssign() | ast.For() | ast.AsyncFor() | ast.NamedExpr():
                targets = [node.target]
        for target in targets:
            found |= {read_dotted_name(each) for each in ast.walk(target) if isinstance(each, ast.expr)}
    return found - {""}


def ends(block: list[ast.stmt]) -> bool:
    """Whether a script does not go on behind a block: it raises an error or exits."""
    last = block[-1] if block else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return read_dotted_name(last.value.func) in ("sys.exit", "exit", "quit", "os._exit")
    return isinstance(last, ast.Raise)


def is_cut_short(loop: ast.For) -> bool:
    """Whether a turn may be the last one before its time."""
    return any(isinstance(node, (ast.Break, ast.Continue)) for node in ast.walk(loop))
