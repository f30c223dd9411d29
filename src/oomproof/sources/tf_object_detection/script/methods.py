"""Methods of a config's messages and lists as protobuf has them. What is not followed here makes a config unknown."""

from __future__ import annotations

import ast
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.config.paths import parse_path
from oomproof.sources.tf_object_detection.script.config_so_far import (
    ConfigNode,
    decides_memory,
    note_unknown,
    set_field,
    take_from,
)
from oomproof.sources.tf_object_detection.script.folding import WRONG
from oomproof.sources.tf_object_detection.script.known_values import ScriptConstants

CHANGING = frozenset(
    [
        "append",
        "extend",
        "add",
        "insert",
        "remove",
        "pop",
        "sort",
        "reverse",
        "clear",
        "update",
        "setdefault",
        "popitem",
        "Clear",
        "ClearField",
        "CopyFrom",
        "MergeFrom",
        "MergeFromString",
        "ParseFromString",
        "FromString",
        "DiscardUnknownFields",
        "ClearExtension",
    ]
)
_OF_LISTS = ("insert", "remove", "pop", "sort", "reverse")


def follow_method(
    node: ConfigNode, call: ast.Call, source: ConfigNode | None, constants: ScriptConstants, at: str
) -> None:
    """``node.name(...)``. ``source``: the config that is its argument."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in CHANGING or not holds_more(node):
        return
    if name in ("append", "extend") and node.path and call.args:
        _append(node, name, call, constants, at)
    elif name == "ClearField" and call.args:
        known, field = constants.evaluate(call.args[0])
        if known:
            clear(node.part(str(field)), at)
        else:
            _lose(node, f"{at}: which field is cleared is not known here")
    elif name in ("Clear", "clear") and not node.is_dictionary:
        clear(node, at)
    elif name in ("CopyFrom", "MergeFrom") and call.args:
        if not take_from(node, source, copy=name == "CopyFrom"):
            _lose(node, f"{at}: {name} takes fields from elsewhere, which are not known here")
    elif not (name in _OF_LISTS and _change_list(node, name, call, constants, at)):
        _lose(node, f"{at}: what {name} leaves of {node.path or 'the config'} is not known here")


def clear(node: ConfigNode, at: str) -> None:
    tracked = node.of
    if not tracked.known:
        return
    tracked.is_changed = True
    try:
        if node.path:
            tracked.config = tracked.config.without(node.path)
        else:
            tracked.config = config_of_text("", tracked.config.name, tracked.config.path)
    except InputError as error:
        tracked.notes.append(f"{at}: {error}")
        return
    tracked.open = {path: note for path, note in tracked.open.items() if not f"{path}.".startswith(f"{node.path}.")}


def _append(node: ConfigNode, name: str, call: ast.Call, constants: ScriptConstants, at: str) -> None:
    known, new = constants.evaluate(call.args[0])
    if not known:
        note_unknown(node, call.args[0], at)
        return
    try:
        there = list(node.of.config.value(node.path) or ())
    except InputError:
        there = []
    set_field(node, there + (list(new) if name == "extend" else [new]), at, node.path)


def _change_list(node: ConfigNode, name: str, call: ast.Call, constants: ScriptConstants, at: str) -> bool:
    """Whether it is known what a method leaves of a repeated field."""
    given = [constants.evaluate(each) for each in call.args]
    if call.keywords or not all(known for known, _ in given) or node.of.is_open(node.path):
        return False
    try:
        items: list[Any] = list(node.of.config.value(node.path))
        getattr(items, name)(*(value for _, value in given))
    except (InputError, *WRONG):
        return False
    set_field(node, items, at, node.path)
    return True


def holds_more(node: ConfigNode) -> bool:
    """Whether it is a message or a list, rather than a number or a text, whose methods change nothing."""
    if not node.path:
        return True
    try:
        last = parse_path(node.path)[-1]
    except InputError:
        return True
    return last.field.message is not None or (last.field.is_repeated and last.index is None)


def _lose(node: ConfigNode, why: str) -> None:
    if not node.of.known:
        return
    node.of.is_changed = True
    if decides_memory(node.path):
        node.of.lose(why)
    else:
        node.of.notes.append(why)
