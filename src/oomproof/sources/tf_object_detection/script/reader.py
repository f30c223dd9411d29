"""Follows what a script does to a pipeline.config: reading, assignments, overrides and its own functions, in order.

What depends on more than the syntax is not guessed: it is left as it was, and said.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.files.looking import is_file
from oomproof.sources.tf_object_detection.config.config import Config, config_of_text
from oomproof.sources.tf_object_detection.config.text_file import read_text
from oomproof.sources.tf_object_detection.script import both_ways
from oomproof.sources.tf_object_detection.script.choosing import choose_config
from oomproof.sources.tf_object_detection.script.config_so_far import (
    KEYS,
    ConfigNode,
    Tracked,
    decides_memory,
    list_items,
    node_of,
    note_unknown,
    read_field,
    set_field,
    take_from,
)
from oomproof.sources.tf_object_detection.script.folding import as_literal, read_dotted_name
from oomproof.sources.tf_object_detection.script.known_values import ScriptConstants, literal_defaults
from oomproof.sources.tf_object_detection.script.overrides import override_by
from oomproof.sources.tf_object_detection.script.scopes import assigned_names, bind_arguments, ends, is_cut_short

_WRITERS = ("MessageToString", "save_pipeline_config", "SerializeToString")
_OPENERS = ("open", "GFile", "Open", "FastGFile")
_MOST_CALLS = 50
_MOST_TURNS = 50
"""of a loop over known values that are followed one by one"""
_MOST_STEPS = 10_000
_CHARACTERS_PER_STEP = 250
_USUAL_NAMES = {**KEYS, "input_config": "train_input_reader", "model_config": "model", "pipeline_config": ""}
"""what names of snippets stand for where nothing in the script says it"""


class ScriptReader:
    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path, self.tree = path, tree
        self.functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        self.classes = {
            node.name: each
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for each in node.body
            if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        }
        self.constants = ScriptConstants(literal_defaults(tree), self._look_up)
        self.outermost: dict[str, ConfigNode] = {}
        """names of the script itself, and what of a config they stand for"""
        self.scope = self.outermost
        """those of the function that is followed"""
        self.turns = 0
        """loops around the present line that may run any number of times"""
        self.files: dict[str, str | None] = {}
        """names that stand for an open file or its text, and which file; None where that is not known"""
        self.found: list[Tracked] = []
        self.usual = Tracked(config_of_text("", str(path)), known=False)
        self._calls: list[str] = []
        self._active: list[str] = []
        self._steps = 0
        self._seen: dict[int, Config] = {}
        """what each config was at the last statement"""

    def follow(self) -> tuple[Tracked | None, list[Tracked]]:
        """The config that the script is about, or None; and everything with something to tell."""
        self._body(self.tree.body, self.scope)
        called = {read_dotted_name(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        for function in sorted(self.functions.values(), key=lambda each: each.name in called):
            if function.name not in self._calls:  # run by a launcher, such as tf.app.run
                self._call(function, None, self.scope)
        return choose_config(self.found, str(self.path)), [*self.found, self.usual]

    def _body(self, body: list[ast.stmt], names: dict[str, ConfigNode]) -> ConfigNode | None:
        for statement in body:
            self._count()
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self._evaluate(value, names)
                case ast.If():
                    returned = self._choose(statement, names)
                case ast.With():
                    for item in statement.items:
                        self._assign(item.optional_vars, item.context_expr, names)
                    returned = self._body(statement.body, names)
                case ast.For() | ast.While():
                    returned = self._loop(statement, names)
                case ast.Try():
                    returned = self._body([*statement.body, *statement.orelse, *statement.finalbody], names)
                case _:
                    returned = None
                    self._statement(statement, names)
            if returned is not None:
                return returned
        return None

    def _choose(self, statement: ast.If, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """The block whose condition holds; where that is not known, both."""
        known, truth = self.constants.evaluate(statement.test)
        if _asks_whether_run(statement.test):
            known = truth = True
        if known:
            return self._body(statement.body if truth else statement.orelse, names)
        before = both_ways.remember(self.found, self.constants, names, self.files)
        one = self._body(statement.body, names)
        if ends(statement.orelse):
            return one
        after = both_ways.remember(self.found, self.constants, names, self.files)
        both_ways.go_back(before, self.constants, names, self.files)
        other = self._body(statement.orelse, names)
        if not ends(statement.body):
            why = f"{self._at(statement)}: «{ast.unparse(statement.test)}» decides"
            both_ways.join(after, self.constants, names, self.files, why)
        return one or other

    def _count(self) -> None:
        """Statements, and characters of configs that they changed: each change reads the whole text again."""
        changed = [each.config for each in self.found if self._seen.get(id(each)) is not each.config]
        self._seen = {id(each): each.config for each in self.found}
        self._steps += 1 + sum(len(each.text) for each in changed) // _CHARACTERS_PER_STEP
        if self._steps > _MOST_STEPS:
            raise InputError(f"{self.path} does too much to be followed; give its pipeline.config instead")

    def _loop(self, loop: ast.For | ast.While, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """Each turn where they are known; else once, with nothing known of what a turn leaves to the next."""
        turns = self._turns(loop, names) if isinstance(loop, ast.For) and not is_cut_short(loop) else None
        if turns is not None:
            assert isinstance(loop, ast.For)
            for value in turns:
                self._assign(loop.target, value, names)
                if (returned := self._body(loop.body, names)) is not None:
                    return returned
            return None
        changed = assigned_names(loop)
        self.constants.forget(changed)
        self.turns += 1
        returned = self._body(loop.body, names)
        self.turns -= 1
        self.constants.forget(changed)
        return returned

    def _turns(self, loop: ast.For, names: dict[str, ConfigNode]) -> list[ast.expr] | None:
        """What the loop's name stands for in each turn; None where that is not known."""
        known, values = self.constants.evaluate(loop.iter)
        if not known:
            items = list_items(loop.iter, self._node(loop.iter, names))
            return items if items is not None and len(items) <= _MOST_TURNS else None
        if not isinstance(values, (list, tuple)) or len(values) > _MOST_TURNS:
            return None
        return [as_literal(each, loop.iter) for each in values]

    def _statement(self, statement: ast.stmt, names: dict[str, ConfigNode]) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value, names)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, names)
            case ast.AugAssign():
                changed = ast.BinOp(_parse(ast.unparse(statement.target)), statement.op, statement.value)
                self._assign(statement.target, ast.copy_location(changed, statement), names)
            case ast.Delete(targets=[target]):
                self._clear(self._node(target, names))
            case ast.Expr(value=value):
                self._evaluate(value, names)

    def _assign(self, target: ast.expr | None, value: ast.expr, names: dict[str, ConfigNode]) -> None:
        if target is None:
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            self._assign_each(target.elts, value, names)
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
            match target:
                case ast.Subscript(value=above, slice=ast.Constant(value=str(key))):
                    self.constants.learn_key(read_dotted_name(above), key, value)
                case _:
                    self.constants.learn(name, value)

    def _assign_each(self, targets: list[ast.expr], value: ast.expr, names: dict[str, ConfigNode]) -> None:
        """``height, width = 512, 512``: all values are found before the first is given away."""
        filled = self.constants.fill(value)
        parts = filled.elts if isinstance(filled, (ast.Tuple, ast.List)) else []
        if len(parts) != len(targets) or any(isinstance(each, ast.Starred) for each in (*parts, *targets)):
            parts = [value] * len(targets)
        for target, part in zip(targets, [self.constants.fill(each) for each in parts], strict=True):
            self._assign(target, part, names)

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
        usual = {name: ConfigNode(self.usual, path) for name, path in _USUAL_NAMES.items()}
        usual["configs"] = ConfigNode(self.usual, "", True)
        return node_of(value, {**usual, **names}, self.constants)

    def _evaluate(self, value: ast.expr, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """The config that an expression gives, after what its calls do."""
        if not isinstance(value, ast.Call):
            return node_of(value, names, self.constants)
        last = read_dotted_name(value.func).rpartition(".")[2] or getattr(value.func, "attr", "")
        given = [self._find_argument(each, names) for each in value.args]
        function = self.functions.get(last) or self.classes.get(last)
        if function is not None:
            return self._call(function, value, names)
        if last == "setattr" and len(value.args) == 3:
            self._set_by_name(value, names)
            return None
        if last == "add" and isinstance(value.func, ast.Attribute):
            return self._add(value, value.func.value, names)
        self._method(value, last, names)
        return self._follow_call(last, value, given, names)

    def _find_argument(self, value: ast.expr, names: dict[str, ConfigNode]) -> ConfigNode | None:
        """What of a config an argument is, which may be a new one: ``Parse(text, TrainEvalPipelineConfig())``."""
        made = isinstance(value, ast.Call) and read_dotted_name(value.func).endswith("TrainEvalPipelineConfig")
        return self._evaluate(value, names) if made else node_of(value, names, self.constants)

    def _set_by_name(self, call: ast.Call, names: dict[str, ConfigNode]) -> None:
        node = self._node(call.args[0], names)
        known, name = self.constants.evaluate(call.args[1])
        if node is not None and known:
            self._set(node.part(str(name)), call.args[2])
        elif node is not None:
            node.of.lost = f"{self._at(call)}: which field is set is not known here"

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

    def _note_training(self, call: ast.Call, names: dict[str, ConfigNode]) -> None:
        """``model_builder.build(model_config, is_training=True)``"""
        words = {each.arg: each.value for each in call.keywords}
        model = words.get("model_config") or (call.args[0] if call.args else None)
        training = words.get("is_training") or (call.args[1] if len(call.args) > 1 else None)
        node = node_of(model, names, self.constants) if model is not None else None
        if node is not None and training is not None and self.constants.evaluate(training) == (True, True):
            node.of.trained_at = self._at(call)

    def _follow_call(
        self, name: str, call: ast.Call, given: list[ConfigNode | None], names: dict[str, ConfigNode]
    ) -> ConfigNode | None:
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
            override_by(first.of, call, self.constants, str(self.path))
            made = first
        elif name == "build":
            self._note_training(call, names)
        elif name in _WRITERS and first is not None:
            first.of.is_written = True
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
            source = node_of(call.args[0], names, self.constants)
            if not take_from(node, source, copy=name == "CopyFrom"):
                note = f"{self._at(call)}: {name} takes fields from elsewhere, which are not known here"
                node.of.notes.append(note)
                if decides_memory(node.path):
                    node.of.lost = note

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
            node.of.lost = f"{self._at(call)}: the text {ast.unparse(source)} is not known before the script runs"
            node.of.notes.append(node.of.lost)

    def _merge_file(self, node: ConfigNode, name: str | None, call: ast.Call) -> None:
        # A script is started from its own folder, or from the one above that its paths begin with.
        places = [] if name is None else [self.path.parent / name, Path(name)]
        file = next((each for each in places if is_file(each)), None)
        if file is None:
            what = "which file is read" if name is None else f"{name}, which is read,"
            node.of.lost = f"{self._at(call)}: {what} is not known here"
            node.of.notes.append(f"{node.of.lost}: its fields are taken by their defaults")
            return
        if not node.path:
            text = f"{node.of.config.text}\n" if node.of.config.text else ""
            node.of.config = config_of_text(text + read_text(file), str(file), file)

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

    def _call(
        self, function: ast.FunctionDef, call: ast.Call | None, names: dict[str, ConfigNode]
    ) -> ConfigNode | None:
        """A function of the script, with what is known of its arguments; its own names end with it."""
        if len(self._calls) > _MOST_CALLS or function.name in self._active:
            return None
        given = bind_arguments(function, call)
        inner = {name: node for name, node in self.outermost.items() if name not in given}
        inner |= {name: node for name, node in names.items() if name.startswith("self.")}
        known: dict[str, ast.expr] = {}
        files: dict[str, str | None] = {}
        for name, value in given.items():
            node = None if value is None else node_of(value, names, self.constants)
            if node is not None:
                inner[name] = node
            elif value is not None:
                known[name] = self.constants.fill(value)
                if self._is_file(value):
                    files[name] = self._file_of(value)
        outside = self.constants.values.copy(), self.constants.dictionaries.copy(), self.files.copy(), self.scope
        self.constants.forget(given)
        for name, value in known.items():
            self.constants.learn(name, value)
        self.files.update(files)
        self.scope = inner
        self._calls.append(function.name)
        self._active.append(function.name)
        returned = self._body(function.body, inner)
        self._active.pop()
        kept = {name: value for name, value in self.constants.values.items() if name.startswith("self.")}
        self.constants.values, self.constants.dictionaries, self.files, self.scope = outside
        self.constants.values.update(kept)
        names.update({name: node for name, node in inner.items() if name.startswith("self.")})
        return returned

    def _at(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 0)}"


def _asks_whether_run(test: ast.expr) -> bool:
    """``if __name__ == "__main__":``"""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
