"""``exec`` and ``eval``: a text that is known is followed as code, and one that is not may change anything."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import config_steps, looking_up
from oomproof.sources.detectron2.script.contents import DECLARED, Foreign, Parts, Ref, Section, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, require_known, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

RUNS_TEXT = (Foreign("exec"), Foreign("eval"))


SHOWS_NAMES = (Foreign("globals"), Foreign("locals"), Foreign("vars"), Foreign("dir"))


def show_names(reader: Reader, called: Foreign, scope: Ref) -> Any:
    """``globals()["BATCH"] = 4``: a dict whose changes are the module's. ``locals()`` in a function is a copy."""
    where = looking_up.top_scope(reader, scope) if called.name == "globals" else scope
    content = reader.memory[where]
    if not isinstance(content, Parts) or called.name == "dir":
        return Unknown(called.name)
    shown = where if content.above is None or content.kind == "class" else None
    return reader.memory.new(Parts("dict", content.parts, shown))


def run_text(reader: Reader, called: Foreign, node: ast.Call, scope: Ref) -> Any:
    if called.name == "eval":
        return _evaluate(reader, node, scope)
    tree = _parse(reader, node, scope, "exec")
    if not isinstance(tree, ast.Module):
        _lose_everything(reader, node, scope)
        return None
    content = reader.memory[scope]
    inside = isinstance(content, Parts) and content.above is not None
    # What it assigns in a function is not seen there afterwards.
    reader.follow(tree.body, reader.memory.new(Parts("scope", {}, scope)) if inside else scope)
    return None


def _evaluate(reader: Reader, node: ast.Call, scope: Ref) -> Any:
    tree = _parse(reader, node, scope, "eval")
    if isinstance(tree, ast.Expression):
        return reader.evaluate(tree.body, scope)
    for ref in dict.fromkeys(reader.configs):
        said = f"{reader.at(node)}: {shorten_code(node)} may change the config, which is not known here"
        config_steps.guess(reader, Section(ref), said)
    return Unknown(shorten_code(node))


def _parse(reader: Reader, node: ast.Call, scope: Ref, mode: str) -> ast.AST | None:
    """The code of the text; None where it is not known, or is given names of its own."""
    if len(node.args) != 1 or node.keywords:
        return None
    try:
        text = require_known(reader, reader.evaluate(node.args[0], scope))
        tree = ast.parse(text.strip() if mode == "eval" else text, mode=mode) if isinstance(text, str) else None
    except (NotKnown, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for each in ast.walk(tree) if tree is not None else ():
        if hasattr(each, "lineno"):
            ast.copy_location(each, node)  # messages name the line of the script
    return tree


def _lose_everything(reader: Reader, node: ast.Call, scope: Ref) -> None:
    """Every config so far, and every plain value that the text may assign anew."""
    for ref in dict.fromkeys(reader.configs):
        config_steps.lose_all(reader, ref, f"{reader.at(node)}: {shorten_code(node)} may change the config")
    at: Ref | None = scope
    while at is not None and isinstance(content := reader.memory[at], Parts):
        lost = {
            name: Unknown(f"{shorten_code(node)}: {name}") if _is_plain(value) and name[:2] != "__" else value
            for name, value in content.parts.items()
            if name not in DECLARED
        }
        reader.memory[at] = Parts(content.kind, {**content.parts, **lost}, content.above)
        at = content.above


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, tuple))
