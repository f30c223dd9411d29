"""Follows calls of a script: those of the API and of protobuf, and of the script's own functions.

What a call that is not followed may change of a config is known no more.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import Config, config_of_text
from oomproof.sources.tf_object_detection.script import effects
from oomproof.sources.tf_object_detection.script.config_so_far import (
    KEYS,
    ConfigNode,
    Tracked,
    decides_memory,
    node_of,
    note_unknown,
    read_field,
    set_field,
    take_from,
)
from oomproof.sources.tf_object_detection.script.folding import read_dotted_name
from oomproof.sources.tf_object_detection.script.known_values import ScriptConstants, literal_defaults
from oomproof.sources.tf_object_detection.script.methods import CHANGING, follow_method, holds_more
from oomproof.sources.tf_object_detection.script.overrides import override_by
from oomproof.sources.tf_object_detection.script.scopes import bind_arguments
from oomproof.sources.tf_object_detection.script.texts import ScriptTexts, copy_of

_WRITERS = ("MessageToString", "save_pipeline_config", "SerializeToString")
_COPIERS = ("copy", "copy2", "copyfile", "Copy", "move", "rename", "replace")
_FOLLOWED = (*_WRITERS, "Merge", "Parse", "build", "deepcopy", "getattr", "CopyFrom", "MergeFrom")
_MOST_CALLS = 50
_USUAL_NAMES = {**KEYS, "input_config": "train_input_reader", "model_config": "model", "pipeline_config": ""}
"""what names of snippets stand for where nothing in the script says it"""


@dataclass(frozen=True)
class ReturnedConfig:
    """A function that has returned, or a script that has stopped."""

    node: ConfigNode | None = None
    """what of a config is returned"""


class CallReader(ABC):
    """What is known at the present line of a script."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path, self.tree = path, tree
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        self.functions = {each.name: each for each in functions}
        self.ambiguous = {each.name for each in functions if each is not self.functions[each.name]}
        """names of several functions, of which it is not known which is called"""
        self.classes = {
            node.name: each
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for each in node.body
            if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        }
        self.imports = effects.imported_names(tree)
        self.constants = ScriptConstants(literal_defaults(tree), self._look_up)
        self.constants.own |= {
            node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        self.instances = 0
        """objects of the script's own classes; with several, it is not known which one ``self`` is"""
        self.outermost: dict[str, ConfigNode] = {}
        """names of the script itself, and what of a config they stand for"""
        self.scope = self.outermost
        """those of the function that is followed"""
        self.turns = 0
        """loops around the present line that may run any number of times"""
        self.texts = ScriptTexts(path, self.constants)
        self.taken: set[str] = set()
        """names that the script gives something else than what is usual"""
        self.perhaps: dict[str, tuple[Tracked, ...]] = {}
        """names that may stand for a part of these configs"""
        self.found: list[Tracked] = []
        self.usual = Tracked(config_of_text("", str(path)), known=False)
        self._calls: list[str] = []
        self._active: list[str] = []
        self._changed: set[str] = set()
        """names that the function which is followed has changed outside of itself"""
        self._steps = 0
        self._seen: dict[int, Config] = {}
        """what each config was at the last statement"""

    @abstractmethod
    def _body(self, body: list[ast.stmt], names: dict[str, ConfigNode]) -> ReturnedConfig | None:
        """What statements do, one after the other."""

    def _look_up(self, value: ast.expr) -> tuple[bool, Any]:
        if self.turns:  # a turn before this one may have left another value
            return False, None
        return read_field(value, self.scope, self.constants)

    def _set(self, node: ConfigNode, value: ast.expr) -> None:
        known, new = self.constants.evaluate(value)
        if known:
            set_field(node, new, self._at(value), node.path)
        else:
            note_unknown(node, value, self._at(value))

    def _node(self, value: ast.expr, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """What of a config is meant; names that a snippet leaves open stand for what they usually do."""
        usual = {name: ConfigNode(self.usual, path) for name, path in _USUAL_NAMES.items() if name not in self.taken}
        if "configs" not in self.taken:
            usual["configs"] = ConfigNode(self.usual, "", True)
        return node_of(value, {**usual, **names}, self.constants)

    def _evaluate(self, value: ast.expr, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """The config that an expression gives, after what its calls do."""
        node = node_of(value, names, self.constants)
        if not isinstance(value, ast.Call) or node is not None:
            self._note_nested(value, names)
            return node
        last = read_dotted_name(value.func).rpartition(".")[2] or getattr(value.func, "attr", "")
        arguments = [*value.args, *(each.value for each in value.keywords)]
        given = {id(each): self._evaluate(each, names) for each in arguments}
        if isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Call):
            self._evaluate(value.func.value, names)
        self.texts.note_opened(value, self._at(value))
        if effects.rewrites_files(value):
            self.texts.rewritten = self._at(value)
        if last in _COPIERS and len(value.args) > 1:
            self.texts.note_copied(*value.args[:2])
        function = self.functions.get(last) or self.classes.get(last)
        if function is not None and (last in self.ambiguous or effects.is_wrapped(function)):
            self._lose(value, names, f"{self._at(value)}: what {last} does with it")
            return None
        if function is not None:
            if function.name == "__init__":
                self._note_instance(names)
            return self._call(function, value, names, given)
        if last == "setattr" and len(value.args) == 3:
            self._set_by_name(value, names)
            return None
        if last == "add" and isinstance(value.func, ast.Attribute) and self._node(value.func.value, names) is not None:
            return self._add(value, value.func.value, names)
        self._method(value, last, names)
        first = given[id(value.args[0])] if value.args else None
        second = given[id(value.args[1])] if len(value.args) > 1 else None
        made = self._follow_call(last, value, (first, second), names)
        classes = self.constants.own - set(self.functions)
        if made is None and last not in _FOLLOWED and not effects.leaves_alone(value.func, classes, self.imports):
            self._lose(value, names, f"{self._at(value)}: what {ast.unparse(value.func)} does with it")
        return made

    def _note_instance(self, names: dict[str, ConfigNode]) -> None:
        """One more object, whose attributes have the names of the other's."""
        self.instances += 1
        self._forget_self(names)

    def _forget_self(self, names: dict[str, ConfigNode]) -> None:
        if self.instances > 1:
            for name in [each for each in names if each.startswith("self.")]:
                self.perhaps["self"] = (*self.perhaps.get("self", ()), names.pop(name).of)
            self.constants.change("self")

    def _note_nested(self, value: ast.AST, names: dict[str, ConfigNode]) -> None:
        """Calls somewhere in an expression, of which it is not followed whether and how often they are made."""
        if isinstance(value, (ast.Constant, ast.Name)):
            return
        for call in effects.calls_within(value):
            last = read_dotted_name(call.func).rpartition(".")[2] or getattr(call.func, "attr", "")
            node = self._node(call.func.value, names) if isinstance(call.func, ast.Attribute) else None
            if last in CHANGING and node is not None and node.of.known and decides_memory(node.path):
                node.of.lose(f"{self._at(call)}: what {last} leaves is not known before the script runs")
            elif last in ("setattr", "Merge", "Parse") or self.functions.get(last) is not None:
                self._lose(call, names, f"{self._at(call)}: what {last} leaves")

    def _set_by_name(self, call: ast.Call, names: dict[str, ConfigNode]) -> None:
        node = self._node(call.args[0], names)
        known, name = self.constants.evaluate(call.args[1])
        if node is not None and known:
            self._set(node.part(str(name)), call.args[2])
        elif node is not None:
            node.of.lost = f"{self._at(call)}: which field is set is not known here"
        self._lose_perhaps(call.args[0], f"{self._at(call)}: what {ast.unparse(call.args[0])} is")

    def _add(self, call: ast.Call, to: ast.expr, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """One more message of a repeated field."""
        node = self._node(to, names)
        if node is None or not node.path or not node.of.known:
            return None
        values = {each.arg: self.constants.evaluate(each.value)[1] for each in call.keywords if each.arg}
        try:
            there = list(node.of.config.value(node.path) or ())
            set_field(node, [*there, values], self._at(call), node.path)
        except (InputError, TypeError):
            return None
        return ConfigNode(node.of, f"{node.path}[{len(there)}]")

    def _find_mentioned(self, value: ast.expr, names: dict[str, ConfigNode]) -> tuple[Tracked, ...]:
        """Configs that an expression may give a part of."""
        dotted = [read_dotted_name(each) for each in ast.walk(value) if isinstance(each, (ast.Name, ast.Attribute))]
        found = [names[each].of for each in dotted if each in names]
        found += [tracked for each in dotted for tracked in self.perhaps.get(each, ())]
        return tuple({id(each): each for each in found}.values())

    def _lose_perhaps(self, value: ast.expr, what: str) -> None:
        """A part of a config that was not recognised is changed."""
        name = read_dotted_name(value) or effects.root_of(value)
        for known, configs in self.perhaps.items():
            if f"{name}.".startswith(f"{known}."):
                for tracked in configs:
                    tracked.lose(f"{what} is not known before the script runs")

    def _lose(self, call: ast.Call, names: dict[str, ConfigNode], what: str) -> None:
        """That a call may change any config, or part of one, that it is given."""
        for given in (*call.args, *(word.value for word in call.keywords)):
            for each in effects.parts_of(given):
                node = node_of(each, names, self.constants)
                if node is not None and node.of.known and holds_more(node) and decides_memory(node.path):
                    node.of.lose(f"{what} is not known before the script runs")
                self._lose_perhaps(each, what)

    def _note_training(self, call: ast.Call, names: dict[str, ConfigNode]) -> None:
        """``model_builder.build(model_config, is_training=True)``"""
        words = {each.arg: each.value for each in call.keywords}
        model = words.get("model_config") or (call.args[0] if call.args else None)
        training = words.get("is_training") or (call.args[1] if len(call.args) > 1 else None)
        node = node_of(model, names, self.constants) if model is not None else None
        if node is not None and training is not None and self.constants.evaluate(training) == (True, True):
            node.of.trained_at = self._at(call)

    def _follow_call(
        self,
        name: str,
        call: ast.Call,
        given: tuple[ConfigNode | None, ConfigNode | None],
        names: dict[str, ConfigNode],
    ) -> ConfigNode | None:
        """The config that a call of the API, of protobuf or of ``copy`` gives."""
        first, second = given
        made = None
        if name == "get_configs_from_pipeline_file":
            made = self._read(call, names)
        elif name == "TrainEvalPipelineConfig":
            made = self._new(config_of_text("", str(self.path)))
        elif name in ("create_pipeline_proto_from_configs", "create_configs_from_pipeline_proto") and first is not None:
            made = ConfigNode(first.of, "", name.startswith("create_configs"))
        elif name == "merge_external_params_with_configs" and first is not None:
            override_by(first.of, call, self.constants, str(self.path))
            made = first
        elif name == "build":
            self._note_training(call, names)
        elif name in _WRITERS and first is not None:
            self._write(name, call, first.of)
        elif name in _WRITERS and call.args:
            self._lose_perhaps(call.args[0], f"{self._at(call)}: what {ast.unparse(call.args[0])} is")
        elif name in ("Merge", "Parse") and second is not None:
            self._merge(second, call)
            made = second
        elif name == "deepcopy" and first is not None:
            made = ConfigNode(copy_of(first.of), first.path, first.is_dictionary)
            self.found.append(made.of)
        return made

    def _write(self, name: str, call: ast.Call, tracked: Tracked) -> None:
        tracked.is_written, tracked.written_as = True, tracked.config
        if name == "save_pipeline_config" and len(call.args) > 1:
            known, folder = self.constants.evaluate(call.args[1])
            file = str(PurePosixPath(str(folder)) / "pipeline.config") if known else None
            self.texts.note_written(file, copy_of(tracked), self._at(call))

    def _method(self, call: ast.Call, name: str, names: dict[str, ConfigNode]) -> None:
        if not isinstance(call.func, ast.Attribute):
            return
        node, of = self._node(call.func.value, names), call.func.value
        if node is not None:
            source = node_of(call.args[0], names, self.constants) if call.args else None
            follow_method(node, call, source, self.constants, self._at(call))
            return
        if name in CHANGING:
            self._lose_perhaps(of, f"{self._at(call)}: what {ast.unparse(of)} is")
        if name == "append" and len(call.args) == 1 and not self.turns:
            self.constants.append(read_dotted_name(of), call.args[0])
        elif name in effects.IN_PLACE:
            self.constants.change(read_dotted_name(of))
        elif name == "write_text" and call.args:
            self.texts.note_written(self.texts.file_of(call), self._text_of(call.args[0], names), self._at(call))
        elif name == "write" and self.texts.is_file(of) and call.args:
            self.texts.note_written(self.texts.file_of(of), self._text_of(call.args[0], names), self._at(call))

    def _text_of(self, value: ast.expr, names: dict[str, ConfigNode]) -> Tracked | None:
        """The config that a text is made of."""
        if isinstance(value, ast.Call) and value.args:
            last = read_dotted_name(value.func).rpartition(".")[2]
            node = node_of(value.args[0], names, self.constants)
            return copy_of(node.of) if last in ("MessageToString", "str") and node is not None else None
        return self.texts.of_configs.get(read_dotted_name(value))

    def _read(self, call: ast.Call, names: dict[str, ConfigNode]) -> ConfigNode:
        arguments = {each.arg: each.value for each in call.keywords}
        file = call.args[0] if call.args else arguments.get("pipeline_config_path")
        node = self._new(config_of_text("", str(self.path)))
        known, name = self.constants.evaluate(file) if file is not None else (False, None)
        self.texts.merge_file(node, str(name) if known else None, self._at(call))
        extra = call.args[1] if len(call.args) > 1 else arguments.get("config_override")
        other = node_of(extra, names, self.constants) if extra is not None else None
        if other is not None:
            take_from(node, other, copy=False)
        elif extra is not None:
            self.texts.merge_text(node, extra, self._at(call))
        return ConfigNode(node.of, "", True)

    def _merge(self, node: ConfigNode, call: ast.Call) -> None:
        source = call.args[0]
        if self.texts.is_file(source):
            self.texts.merge_file(node, self.texts.file_of(source), self._at(call))
        else:
            self.texts.merge_text(node, source, self._at(call))

    def _new(self, config: Config) -> ConfigNode:
        tracked = Tracked(config)
        self.found.append(tracked)
        return ConfigNode(tracked)

    def _call(
        self,
        function: ast.FunctionDef,
        call: ast.Call | None,
        names: dict[str, ConfigNode],
        made: Mapping[int, ConfigNode | None],
    ) -> ConfigNode | None:
        """A function of the script, with what is known of its arguments; its own names end with it. ``made``: what of a
        config its arguments are, by their identity."""
        if len(self._calls) > _MOST_CALLS or function.name in self._active:
            if call is not None:
                self._lose(call, names, f"{self._at(call)}: what {function.name} does with it")
            return None
        self._forget_self(names)
        given = bind_arguments(function, call)
        inner = {name: node for name, node in self.outermost.items() if name not in given}
        inner |= {name: node for name, node in names.items() if name.startswith("self.")}
        known: dict[str, ast.expr] = {}
        files: dict[str, str | None] = {}
        for name, value in given.items():
            node = None if value is None else made.get(id(value)) or node_of(value, names, self.constants)
            if node is not None and holds_more(node):
                inner[name] = node
            elif value is not None:
                known[name] = self.constants.fill(value)
                if self.texts.is_file(value):
                    files[name] = self.texts.file_of(value)
        outside = self.constants.state(), self.texts.files.copy(), self.scope, self._changed
        self.constants.forget(given)
        for name, value in known.items():
            self.constants.learn(name, value)
        self.texts.files.update(files)
        self.scope, self._changed = inner, effects.names_changed_outside(function)
        self._calls.append(function.name)
        self._active.append(function.name)
        ended = self._body(function.body, inner)
        self._active.pop()
        changed = {*self._changed, "self"}
        state, self.texts.files, self.scope, before = outside
        self.constants.go_back(state, changed)
        self._changed = before | changed - {"self"}
        for name in effects.parameters_changed(function) & set(given):
            value = given[name]
            self.constants.change(read_dotted_name(value) if value is not None else "")
        self._give_back(names, inner, changed)
        return ended.node if ended is not None else None

    def _give_back(self, names: dict[str, ConfigNode], inner: dict[str, ConfigNode], changed: set[str]) -> None:
        """What a function has made of names that are not its own."""
        for name in changed - {"self"}:
            for of in (names, self.outermost):
                if name in inner:
                    of[name] = inner[name]
                else:
                    of.pop(name, None)
        names.update({name: node for name, node in inner.items() if name.startswith("self.")})
        self._forget_self(names)

    def _at(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 0)}"
