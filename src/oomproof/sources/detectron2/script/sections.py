"""Sections of a config as dicts: what they hold, and what becomes of one that a script puts another in place of."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.config.schema import DEFAULTS, SECTIONS
from oomproof.sources.detectron2.script import config_steps, looking_up
from oomproof.sources.detectron2.script.contents import Call, Made, Parts, Section, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, require_known, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

READS = ("get", "keys", "values", "items")
GIVE_NOTHING = frozenset(
    ("freeze", "defrost", "set_new_allowed", "merge_from_file", "merge_from_list", "merge_from_other_cfg", "update",
     "__setitem__", "__setattr__", "__delitem__", "clear", "register_deprecated_key", "register_renamed_key")
)  # fmt: skip
"""methods of a config that give None; what others give is not known"""


def read_section(reader: Reader, section: Section, name: str, call: Call) -> Any:
    """``cfg.get("SOLVER")``, ``cfg.MODEL.items()``"""
    made = reader.memory[section.of]
    assert isinstance(made, Made)
    names = _names(section, made)
    if name == "get":
        try:
            key = require_known(reader, call.get("key", 0))
        except NotKnown as reason:
            return Unknown(str(reason), (section.of,))
        if key in names:
            return looking_up.attribute(reader, section, str(key))
        return Unknown(shorten_code(call.node)) if made.takes_new_keys else call.get("default", 1)
    if made.takes_new_keys:
        return Unknown(shorten_code(call.node), (section.of,))
    values = [looking_up.attribute(reader, section, each) for each in names]
    pairs = tuple(zip(names, values, strict=True))
    return {"keys": tuple(names), "values": tuple(values), "items": pairs}[name]


def _names(section: Section, made: Made) -> list[str]:
    start = f"{section.prefix}." if section.prefix else ""
    inside = [key.removeprefix(start) for key in (*DEFAULTS, *made.own) if key.startswith(start)]
    return list(dict.fromkeys(key.partition(".")[0] for key in inside))


def replace_section(reader: Reader, section: Section, key: str, parts: Parts, node: ast.AST) -> None:
    """``cfg.INPUT = CN({...})``: what the new section does not have is gone."""
    made = reader.memory[section.of]
    assert isinstance(made, Made)
    where = reader.at(node)
    said = f"is gone where {shorten_code(node)} takes the place of {key}; Detectron2 fails without it"
    gone = {each: f"{where}: {each} {said}" for each in DEFAULTS if each.startswith(f"{key}.")}
    config = replace(made.config, unknown={**made.config.unknown, **gone})
    own = {name: value for name, value in made.own.items() if name != key and not name.startswith(f"{key}.")}
    reader.memory[section.of] = replace(made, config=config, own=own, touched=made.touched + 1)
    set_parts(reader, Section(section.of, key), parts, node)


def set_parts(reader: Reader, section: Section, parts: Parts, node: ast.AST) -> None:
    """Every key of a dict, and of the dicts in it."""
    for name, value in parts.parts.items():
        key = f"{section.prefix}.{name}".lstrip(".")
        inner = reader.memory.get(value)
        if key in SECTIONS and isinstance(inner, Parts):
            set_parts(reader, Section(section.of, key), inner, node)
        else:
            config_steps.set_key(reader, section, str(name), value, node)
