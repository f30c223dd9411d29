"""A config while a script is followed: what is set, what does nothing, and what cannot be known."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.config import Config, Origin
from oomproof.sources.detectron2.config.inventions import advice
from oomproof.sources.detectron2.config.schema import DEFAULTS, SECTIONS
from oomproof.sources.detectron2.config.values import checked, nearest
from oomproof.sources.detectron2.script.known_values import Constants, dotted


@dataclass(eq=False)
class Tracked:
    """One config object of the script."""

    config: Config
    notes: list[str] = field(default_factory=list)
    touched: int = 0


@dataclass(frozen=True)
class Node:
    """A config, or a section or key of one: ``solver = cfg.SOLVER``."""

    of: Tracked
    prefix: str = ""


def node_of(value: ast.expr, names: Mapping[str, Node]) -> Node | None:
    """What of a config an expression names; ``names`` are those that stand for configs and sections."""
    text = dotted(value)
    for name in sorted(names, key=len, reverse=True):
        if text == name or text.startswith(f"{name}."):
            start = names[name]
            return Node(start.of, f"{start.prefix}{text[len(name) :]}".strip("."))
    return None


def set_key(
    node: Node,
    value: ast.expr,
    where: Origin,
    *,
    constants: Constants,
    names: Mapping[str, Node],
    reads: Collection[str],
) -> None:
    """``cfg.KEY = value``, which Detectron2 neither checks nor refuses; ``reads`` are names that the script reads."""
    key, tracked = node.prefix, node.of
    tracked.touched += 1
    if key not in DEFAULTS:
        tracked.notes += _unknown(key, value, where, reads)
        return
    known, new = constants.known(_with_keys(value, names))
    if not known:
        tracked.notes.append(
            f"{where}: {key} = {ast.unparse(value)} is not known before the script runs: taken as "
            f"{tracked.config.values[key]!r}; give it behind the job, {key} VALUE"
        )
        return
    try:
        fitting = _as_usual(key, new, where)
    except InputError as error:
        tracked.notes.append(f"{error}; taken as {tracked.config.values[key]!r}")
        return
    config = tracked.config
    tracked.config = replace(config, values={**config.values, key: fitting}, origins={**config.origins, key: where})


def _as_usual(key: str, new: Any, where: Origin) -> Any:
    """The value in the type that the key has. Code may set any type; these two work as well."""
    if type(new) is int and type(DEFAULTS[key]) is float:
        return float(new)
    if type(new) is int and key == "INPUT.MIN_SIZE_TRAIN":
        return (new,)
    return checked(key, new, str(where))


def _unknown(key: str, value: ast.expr, where: Origin, reads: Collection[str]) -> list[str]:
    if key in SECTIONS:
        return [f"{where}: {key} is a section; with {ast.unparse(value)} in its place Detectron2 fails later"]
    if isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] in ("CN", "CfgNode"):
        return []  # a section of one's own, for code of one's own
    if any(read.endswith(f".{key}") for read in reads):
        return [f"{where}: {key} is no key of Detectron2; the script reads it itself, which is not forecast"]
    meant = nearest(key)
    instead = advice(key) or (f"Did you mean {' or '.join(meant)}?" if meant else "")
    said = f"{where}: {key} does nothing: Detectron2 has no such key and takes it in silence. {instead}"
    return [said.strip()]


def _with_keys(value: ast.expr, names: Mapping[str, Node]) -> ast.expr:
    """The expression with every ``cfg.KEY`` in it as the value that it has now."""

    class Known(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            found = node_of(node, names)
            if found is not None and found.prefix in DEFAULTS:
                return ast.parse(repr(found.of.config.values[found.prefix]), mode="eval").body
            return self.generic_visit(node)

    changed: ast.expr = Known().visit(ast.parse(ast.unparse(value), mode="eval").body)
    return changed
