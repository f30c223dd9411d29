"""Changes of things that are not known: they may be a config, or a part of one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.script import config_steps
from oomproof.sources.detectron2.script.contents import Call, Foreign, Made, Method, Section, Unknown
from oomproof.sources.detectron2.script.knowing import shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_CHANGES = frozenset(("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update"))
_MERGES = ("merge_from_file", "merge_from_list", "merge_from_other_cfg")


def set_key(reader: Reader, of: Any, name: str, node: ast.AST) -> None:
    """``that.SOLVER.IMS_PER_BATCH = 4``, where nobody knows what ``that`` is: any config may have this key anew."""
    if not isinstance(of, (Unknown, Foreign, Method)) or not name.isupper():
        return
    path = f"{_path(of)}.{name}"
    keys = [key for key in DEFAULTS if f".{path}".endswith(f".{key}")]
    if not keys and not _path(of).rpartition(".")[2].isupper():
        keys = [key for key in DEFAULTS if key.rpartition(".")[2] == name]  # a section by another name
    for key in keys:
        why = f"{reader.at(node)}: {key} may be set to {shorten_code(node)}, which is not known before the script runs"
        for ref in dict.fromkeys(reader.configs):
            config_steps.forget(reader, ref, key, why)


def lose_any(reader: Reader, of: Unknown, node: ast.AST) -> None:
    """``node[name] = value``, where neither is known, but the node may be of a config."""
    for ref in of.may_be:
        config_steps.lose(reader, Section(ref), node)


def merge(reader: Reader, called: str, call: Call) -> None:
    """``that.merge_from_list(...)``, where nobody knows what ``that`` is."""
    if called in _MERGES:
        for ref in dict.fromkeys(reader.configs):
            config_steps.lose_all(
                reader, ref, f"{reader.at(call.node)}: {shorten_code(call.node)} may change the config"
            )


def change_list(reader: Reader, of: Any, name: str, call: Call) -> None:
    """``cfg.MODEL.ANCHOR_GENERATOR.SIZES.append(...)``"""
    if isinstance(of, (list, dict)) and name in _CHANGES:
        change_value(reader, of, call.node)


def change_value(reader: Reader, value: Any, node: ast.AST) -> None:
    """A list in a config is changed in its place: the keys that hold it are not known from then on."""
    for ref in dict.fromkeys(reader.configs):
        made = reader.memory.get(ref)
        for key, held in made.config.values.items() if isinstance(made, Made) else ():
            if _holds(held, value):
                why = (
                    f"{reader.at(node)}: {shorten_code(node)} changes {key}, which is not known before the script runs"
                )
                config_steps.forget(reader, ref, key, why)


def _holds(held: Any, value: Any) -> bool:
    return held is value or (isinstance(held, (list, tuple)) and any(_holds(each, value) for each in held))


def _path(of: Unknown | Foreign | Method) -> str:
    match of:
        case Unknown(why):
            return why
        case Foreign(name):
            return name
    inner = _path(of.of) if isinstance(of.of, (Unknown, Foreign, Method)) else ""
    return f"{inner}.{of.name}"
