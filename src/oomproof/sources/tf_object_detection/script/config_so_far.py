"""A pipeline.config while a script is followed: what is set, what does not exist, and what cannot be known."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import Config, config_of_text
from oomproof.sources.tf_object_detection.config.paths import parse_path
from oomproof.sources.tf_object_detection.script.folding import read_dotted_name
from oomproof.sources.tf_object_detection.script.known_values import ScriptConstants

KEYS = {
    "model": "model",
    "train_config": "train_config",
    "train_input_config": "train_input_reader",
    "eval_config": "eval_config",
    "eval_input_configs": "eval_input_reader",
    "eval_input_config": "eval_input_reader[0]",
    "graph_rewriter_config": "graph_rewriter",
}
"""of the dictionary that config_util makes of a config"""
_SCALARS = (int, float, str, bool)


@dataclass(eq=False)
class Tracked:
    """One config object of the script; ``known`` is false where only the names of its fields are."""

    config: Config
    notes: list[str] = field(default_factory=list)
    known: bool = True
    mistakes: list[str] = field(default_factory=list)
    """of the notes, those at which the script stops"""
    open: dict[str, str] = field(default_factory=dict)
    """paths of fields that only a run decides, and the note on each"""
    lost: str = ""
    """why the file that it begins with is not known; empty where it is"""
    is_changed: bool = False
    """whether the script sets a field of it"""
    trained_at: str = ""
    """where the script builds the model to train it by itself"""
    is_written: bool = False
    """whether the script makes a file or a text of it"""
    written_as: Config | None = None
    """as it was when that was done the last time"""

    def is_open(self, path: str) -> bool:
        return any(f"{path}.".startswith(f"{each}.") for each in self.open)

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        self.notes.append(why)

    def note_mistake(self, note: str) -> None:
        self.notes.append(note)
        self.mistakes.append(note)


@dataclass(frozen=True)
class ConfigNode:
    """A config, a message of one (``train = pipeline.train_config``), or the dictionary that config_util makes."""

    of: Tracked
    path: str = ""
    is_dictionary: bool = False

    def part(self, name: str) -> ConfigNode:
        if self.is_dictionary:
            return ConfigNode(self.of, KEYS.get(name, name))
        return ConfigNode(self.of, f"{self.path}.{name}" if self.path else name)


def node_of(value: ast.expr, names: Mapping[str, ConfigNode], constants: ScriptConstants) -> ConfigNode | None:
    """What of a config an expression such as ``configs["train_config"].optimizer`` names."""
    if (dotted := read_dotted_name(value)) in names:  # a name, or self.configs
        return names[dotted]
    match value:
        case ast.Attribute():
            above = node_of(value.value, names, constants)
            return above.part(value.attr) if above is not None else None
        case ast.Subscript():
            return _item(value, names, constants)
        case ast.Call():
            return _part_by_name(value, names, constants)
    return None


def _item(value: ast.Subscript, names: Mapping[str, ConfigNode], constants: ScriptConstants) -> ConfigNode | None:
    above = node_of(value.value, names, constants)
    if above is None or isinstance(value.slice, ast.Slice):  # input_path[:] is the whole list
        return above
    known, index = constants.evaluate(value.slice)
    if known and isinstance(index, str):
        return above.part(index)
    if known and isinstance(index, int) and not isinstance(index, bool):
        return ConfigNode(above.of, f"{above.path}[{_from_front(above, index)}]")
    return None


def _part_by_name(call: ast.Call, names: Mapping[str, ConfigNode], constants: ScriptConstants) -> ConfigNode | None:
    """``getattr(config, "model")`` and ``configs.get("model")``"""
    match call:
        case ast.Call(func=ast.Name(id="getattr"), args=[of, name, *_]):
            of_dictionary = False
        case ast.Call(func=ast.Attribute(value=of, attr="get"), args=[name, *_]):
            of_dictionary = True
        case _:
            return None
    above = node_of(of, names, constants)
    known, part = constants.evaluate(name)
    if above is None or not known or above.is_dictionary is not of_dictionary:
        return None
    return above.part(str(part))


def read_field(value: ast.expr, names: Mapping[str, ConfigNode], constants: ScriptConstants) -> tuple[bool, Any]:
    """What a config says where an expression asks it: a field's value, the chosen member, whether a field is set."""
    asked = ""
    node = None
    match value:
        case ast.Attribute() | ast.Subscript() | ast.Name():
            node = node_of(value, names, constants)
        case ast.Call(func=ast.Attribute(value=of, attr="WhichOneof" | "HasField" as asked), args=[argument]):
            node = node_of(of, names, constants)
            known, name = constants.evaluate(argument)
            if node is not None and asked == "HasField":
                node = node.part(str(name)) if known else None
    if node is None or not node.path or not node.of.known or node.of.lost or node.of.is_open(node.path):
        return False, None
    try:
        found = _ask(node, asked)
    except InputError:
        return False, None
    parts = found if isinstance(found, tuple) else (found,)
    known = all(isinstance(each, _SCALARS) for each in parts) or bool(asked)
    return known, found if known else None


def _ask(node: ConfigNode, what: str) -> Any:
    if what == "HasField":
        return node.of.config.is_set(node.path)
    return node.of.config.which(node.path) or None if what else node.of.config.value(node.path)


def names_a_list(node: ConfigNode) -> bool:
    """Whether it is all values of a repeated field."""
    try:
        last = parse_path(node.path)[-1]
    except InputError:
        return False
    return last.field.is_repeated and last.index is None


def list_items(value: ast.expr, node: ConfigNode | None) -> list[ast.expr] | None:
    """Expressions for the items of a repeated field; None where they are not known."""
    if node is None or not node.path or not node.of.known or node.of.lost:
        return None
    try:
        found = node.of.config.value(node.path)
    except InputError:
        return None
    if not isinstance(found, tuple):
        return None
    indices = [ast.copy_location(ast.Constant(at), value) for at in range(len(found))]
    return [ast.copy_location(ast.Subscript(value, index, ast.Load()), value) for index in indices]


def _from_front(node: ConfigNode, index: int) -> int:
    """Counted from the front, where a script counts from the end."""
    if index >= 0:
        return index
    try:
        return max(0, len(node.of.config.value(node.path)) + index)
    except (InputError, TypeError):
        return 0


def set_field(node: ConfigNode, value: Any, where: str, said: str) -> None:
    """``node = value``; what protobuf would refuse becomes a note, and the field stays as it was."""
    tracked = node.of
    tracked.is_changed = True
    try:
        steps = parse_path(node.path)
        if steps[-1].field.message is not None and not isinstance(value, (list, tuple)):
            raise InputError(f"{node.path} is a message, which protobuf does not let be assigned; set its fields")
        if tracked.known:
            tracked.config = tracked.config.with_value(node.path, value)
            tracked.open.pop(node.path, None)
    except InputError as error:
        why = str(error).replace("the API refuses the file", "the script stops here with an AttributeError")
        tracked.note_mistake(f"{where}: {why if why.startswith(said) else f'{said}: {why}'}")


def decides_memory(path: str) -> bool:
    """Whether a message may hold what a forecast needs; the whole config and its model do."""
    return not path.startswith("eval_") and "data_augmentation_options" not in path


def take_from(node: ConfigNode, source: ConfigNode | None, *, copy: bool) -> bool:
    """``node.CopyFrom(source)``, or MergeFrom; False where it is not known what that gives."""
    if source is None or source.is_dictionary or not (node.of.known and source.of.known) or source.of.lost:
        return False
    node.of.is_changed = True
    before = node.of.config
    if not node.path and not source.path:
        text = source.of.config.text if copy else f"{before.text}\n{source.of.config.text}"
        node.of.config = config_of_text(text, before.name, before.path)
        node.of.open = {**({} if copy else node.of.open), **source.of.open}
        return True
    if not node.path or not source.path:
        return False
    try:
        values = source.of.config.value(source.path)
        if copy:
            node.of.config = before.with_value(node.path, values or {})
        elif values:
            alone = config_of_text("", before.name).with_value(node.path, values).text
            node.of.config = config_of_text(f"{before.text}\n{alone}", before.name, before.path)
    except InputError:
        return False
    for path, note in source.of.open.items():
        if path.startswith(source.path):
            node.of.open[node.path + path.removeprefix(source.path)] = note
    return True


def note_unknown(node: ConfigNode, value: ast.expr, where: str) -> None:
    """That a field exists and its value is not in the script's text; or that it does not exist."""
    try:
        parse_path(node.path)
    except InputError as error:
        why = str(error).replace("the API refuses the file", "the script stops here with an AttributeError")
        node.of.note_mistake(f"{where}: {why}")
        return
    node.of.is_changed = True
    if node.of.known:
        note = f"{where}: {node.path} = {ast.unparse(value)} is not known before the script runs"
        node.of.open[node.path] = note
        node.of.notes.append(f"{note}: taken as {_describe_value(node.of.config, node.path)}")


def _describe_value(config: Config, path: str) -> str:
    try:
        return repr(config.value(path))
    except InputError:
        return "it is in the file"
