"""Follows what a script does to a pipeline.config: reading, assignments, overrides and its own functions, in order.

What depends on more than the syntax is not guessed: it is left as it was, and said.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import Config, config_of_text
from oomproof.sources.tf_object_detection.config.text_file import read_text
from oomproof.sources.tf_object_detection.script.config_so_far import (
    KEYS,
    ConfigNode,
    Tracked,
    node_of,
    note_unknown,
    set_field,
)
from oomproof.sources.tf_object_detection.script.known_values import ScriptConstants, literal_defaults, read_dotted_name
from oomproof.sources.tf_object_detection.script.overrides import override

_OPENERS = ("open", "GFile", "Open", "FastGFile")
_MOST_CALLS = 50
_USUAL_NAMES = {**KEYS, "input_config": "train_input_reader", "model_config": "model", "pipeline_config": ""}
"""what names of snippets stand for where nothing in the script says it"""


class ScriptReader:
    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path, self.tree = path, tree
        self.functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        self.constants = ScriptConstants(literal_defaults(tree))
        self.files: dict[str, str | None] = {}
        """names that stand for an open file or its text, and which file; None where that is not known"""
        self.found: list[Tracked] = []
        self.usual = Tracked(config_of_text("", str(path)), known=False)
        self._calls: list[str] = []
        self._active: list[str] = []

    def follow(self) -> tuple[Tracked | None, list[Tracked]]:
        """The first config that the script reads or makes, or None; and everything with something to tell."""
        self._body(self.tree.body, {})
        called = {read_dotted_name(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        for function in sorted(self.functions.values(), key=lambda each: each.name in called):
            if function.name not in self._calls:  # run by a launcher, such as tf.app.run
                self._call(function, {})
        return (self.found[0] if self.found else None), [*self.found, self.usual]

    def _body(self, body: list[ast.stmt], names: dict[str, ConfigNode]) -> ConfigNode | None:
        for statement in body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self._evaluate(value, names)
                case ast.If():
                    known, truth = self.constants.evaluate(statement.test)
                    returned = self._body(statement.orelse if known and not truth else statement.body, names)
                case ast.With():
                    for item in statement.items:
                        self._assign(item.optional_vars, item.context_expr, names)
                    returned = self._body(statement.body, names)
                case ast.For() | ast.While() | ast.Try():
                    returned = self._body(statement.body, names)
                case _:
                    returned = None
                    self._statement(statement, names)
            if returned is not None:
                return returned
        return None

    def _statement(self, statement: ast.stmt, names: dict[str, ConfigNode]) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, value, names)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, names)
            case ast.AugAssign():
                self._assign(
                    statement.target, ast.BinOp(_to_load(statement.target), statement.op, statement.value), names
                )
            case ast.Delete(targets=[target]):
                self._clear(self._node(target, names))
            case ast.Expr(value=value):
                self._evaluate(value, names)

    def _assign(self, target: ast.expr | None, value: ast.expr, names: dict[str, ConfigNode]) -> None:
        if target is None:
            return
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            node = self._node(target, names)
            if node is not None and node.path:
                self._set(node, value)
                return
        made = self._evaluate(value, names)
        name = read_dotted_name(target)
        if made is not None and name:
            names[name] = made
        elif name:
            names.pop(name, None)
            self.files.pop(name, None)
            if self._is_file(value):
                self.files[name] = self._file_of(value)
            self.constants.learn(name, value)

    def _set(self, node: ConfigNode, value: ast.expr) -> None:
        known, new = self.constants.evaluate(value)
        if known:
            set_field(node, new, self._at(value), node.path)
        else:
            note_unknown(node, value, self._at(value))

    def _node(self, value: ast.expr, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """What of a config is meant; names that a snippet leaves open stand for what they usually do."""
        usual = {name: ConfigNode(self.usual, path) for name, path in _USUAL_NAMES.items()}
        usual["configs"] = ConfigNode(self.usual, "", True)
        return node_of(value, {**usual, **names}, self.constants)

    def _evaluate(self, value: ast.expr, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """The config that an expression gives, after what its calls do."""
        if not isinstance(value, ast.Call):
            return node_of(value, names, self.constants)
        last = read_dotted_name(value.func).rpartition(".")[2] or getattr(value.func, "attr", "")
        given = [node_of(each, names, self.constants) for each in value.args]
        if last in self.functions:
            parameters = [each.arg for each in self.functions[last].args.args]
            return self._call(self.functions[last], dict(zip(parameters, given, strict=False)))
        self._method(value, last, names)
        return self._follow_call(last, value, given)

    def _follow_call(self, name: str, call: ast.Call, given: list[ConfigNode | None]) -> ConfigNode | None:
        """The config that a call of the API or of protobuf gives."""
        first = given[0] if given else None
        made = None
        if name == "get_configs_from_pipeline_file":
            made = self._read(call)
        elif name == "TrainEvalPipelineConfig":
            made = self._new(config_of_text("", str(self.path)))
        elif name in ("create_pipeline_proto_from_configs", "create_configs_from_pipeline_proto") and first is not None:
            made = ConfigNode(first.of, "", name.startswith("create_configs"))
        elif name == "merge_external_params_with_configs" and first is not None:
            self._override(first, call)
            made = first
        elif name in ("Merge", "Parse") and len(given) > 1 and given[1] is not None:
            self._merge(given[1], call)
            made = given[1]
        return made

    def _method(self, call: ast.Call, name: str, names: dict[str, ConfigNode]) -> None:
        node = self._node(call.func.value, names) if isinstance(call.func, ast.Attribute) else None
        if node is None or not call.args:
            return
        if name in ("append", "extend") and node.path:
            known, new = self.constants.evaluate(call.args[0])
            if not known:
                note_unknown(node, call.args[0], self._at(call))
                return
            try:
                there = list(node.of.config.value(node.path) or ())
            except InputError:
                there = []
            set_field(node, there + (list(new) if name == "extend" else [new]), self._at(call), node.path)
        elif name == "ClearField":
            known, field = self.constants.evaluate(call.args[0])
            self._clear(node.part(str(field)) if known else None)
        elif name in ("CopyFrom", "MergeFrom"):
            node.of.notes.append(f"{self._at(call)}: {name} takes fields from elsewhere, which are not known here")

    def _clear(self, node: ConfigNode | None) -> None:
        if node is not None and node.path and node.of.known:
            try:
                node.of.config = node.of.config.without(node.path)
            except InputError as error:
                node.of.notes.append(f"{self.path}: {error}")

    def _read(self, call: ast.Call) -> ConfigNode:
        arguments = {each.arg: each.value for each in call.keywords}
        file = call.args[0] if call.args else arguments.get("pipeline_config_path")
        node = self._new(config_of_text("", str(self.path)))
        known, name = self.constants.evaluate(file) if file is not None else (False, None)
        self._merge_file(node, str(name) if known else None, call)
        extra = call.args[1] if len(call.args) > 1 else arguments.get("config_override")
        if extra is not None:
            self._merge_text(node, extra, call)
        return ConfigNode(node.of, "", True)

    def _merge(self, node: ConfigNode, call: ast.Call) -> None:
        source = call.args[0]
        if self._is_file(source):
            self._merge_file(node, self._file_of(source), call)
        else:
            self._merge_text(node, source, call)

    def _merge_text(self, node: ConfigNode, source: ast.expr, call: ast.Call) -> None:
        known, text = self.constants.evaluate(source)
        if known and isinstance(text, str):
            if not node.path:
                before = node.of.config  # a text behind another is read as the two merged
                node.of.config = config_of_text(f"{before.text}\n{text}", before.name, before.path)
        elif not (known and text is None):
            node.of.notes.append(
                f"{self._at(call)}: the text {ast.unparse(source)} is not known before the script runs"
            )

    def _merge_file(self, node: ConfigNode, name: str | None, call: ast.Call) -> None:
        # A script is started from its own folder, or from the one above that its paths begin with.
        places = [] if name is None else [self.path.parent / name, Path(name)]
        file = next((each for each in places if each.is_file()), None)
        if file is None:
            what = "which file is read" if name is None else f"{name}, which is read,"
            node.of.lost = f"{self._at(call)}: {what} is not known here"
            node.of.notes.append(f"{node.of.lost}: its fields are taken by their defaults")
            return
        if not node.path:
            text = f"{node.of.config.text}\n" if node.of.config.text else ""
            node.of.config = config_of_text(text + read_text(file), str(file), file)

    def _override(self, node: ConfigNode, call: ast.Call) -> None:
        given = next((each.value for each in call.keywords if each.arg == "kwargs_dict"), None)
        given = given or (call.args[2] if len(call.args) > 2 else None)
        if not isinstance(given, ast.Dict):
            node.of.notes.append(f"{self._at(call)}: the overrides are not known before the script runs")
            return
        for key, value in zip(given.keys, given.values, strict=True):
            known, new = self.constants.evaluate(value)
            if known and isinstance(key, ast.Constant):
                override(node.of, str(key.value), new, self._at(value))
            else:
                node.of.notes.append(f"{self._at(value)}: {ast.unparse(value)} is not known before the script runs")

    def _is_file(self, value: ast.expr) -> bool:
        """Whether an expression is an open file, or the text of one."""
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "read":
            return self._is_file(value.func.value)
        if isinstance(value, ast.Call):
            return read_dotted_name(value.func).rpartition(".")[2] in _OPENERS
        return read_dotted_name(value) in self.files

    def _file_of(self, value: ast.expr) -> str | None:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "read":
            return self._file_of(value.func.value)
        if isinstance(value, ast.Call):
            known, name = self.constants.evaluate(value.args[0]) if value.args else (False, None)
            return str(name) if known else None
        return self.files.get(read_dotted_name(value))

    def _new(self, config: Config) -> ConfigNode:
        tracked = Tracked(config)
        self.found.append(tracked)
        return ConfigNode(tracked)

    def _call(self, function: ast.FunctionDef, given: dict[str, Any]) -> ConfigNode | None:
        if len(self._calls) > _MOST_CALLS or function.name in self._active:
            return None
        self._calls.append(function.name)
        self._active.append(function.name)
        returned = self._body(function.body, {name: node for name, node in given.items() if node is not None})
        self._active.pop()
        return returned

    def _at(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 0)}"


def _to_load(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body
