"""Follows what a script does to ``cfg``: assignments, merges and calls of its own functions, in order.

What depends on more than the syntax (arguments, the environment, files that are made on the way) is not guessed: it is
left as it was, and said.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.config import Config, Origin, from_defaults, merged_with, overridden
from oomproof.sources.detectron2.config.schema import SECTIONS
from oomproof.sources.detectron2.script.config_so_far import Node, Tracked, node_of, set_key
from oomproof.sources.detectron2.script.known_values import Constants, dotted, literal_defaults

_DEEPEST = 8
_MOST_CALLS = 200
_USERS = ("build_model", "do_train", "build_train_loader", "build_detection_train_loader")
"""calls that take a config to train with it; so do classes whose name ends in Trainer"""


class ScriptReader:
    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path, self.tree = path, tree
        self.functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        self.constants = Constants(literal_defaults(tree))
        self.read_keys = {
            dotted(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
        self.found: list[Tracked] = []
        self.used: Tracked | None = None
        self._followed: list[str] = []

    def config(self) -> Config:
        self._follow(self.tree.body, {})
        for function in self.functions.values():  # what is run by a launcher, a framework or another file
            if self.used is None and function.name not in self._followed:
                self._call(function, {})
        if not self.found:
            raise InputError(f"{self.path} makes no config that its code alone tells; give its YAML file instead")
        chosen = self.used or max(self.found, key=lambda each: each.touched)
        others = len(self.found) - 1
        more = [f"{self.path} makes {others} more config(s), which were not looked at"] if others else []
        config = chosen.config
        notes = (*config.notes, *chosen.notes, *more)
        return replace(config, path=None, notes=tuple(dict.fromkeys(notes)))

    # -- statements --------------------------------------------------------------------------------------------

    def _follow(self, body: list[ast.stmt], names: dict[str, Node]) -> Node | None:
        """Runs over statements; ``names`` are those that stand for configs. Returns the config that is returned."""
        for statement in body:
            if self.used is not None:
                return None
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self._evaluated(value, names)
                case ast.If():
                    returned = self._follow(self._branch(statement, names), names)
                case ast.With() | ast.For() | ast.While() | ast.Try():
                    returned = self._follow(statement.body, names)
                case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                    returned = None
                case _:
                    returned = None
                    self._statement(statement, names)
            if returned is not None:
                return returned
        return None

    def _branch(self, statement: ast.If, names: dict[str, Node]) -> list[ast.stmt]:
        """The branch that runs, as far as that is known; else the first, which is said if it touches a config."""
        known, truth = self.constants.known(statement.test)
        if known:
            return statement.body if truth else statement.orelse
        if not _is_main(statement.test):
            touched = {
                names[node.id].of
                for part in statement.body
                for node in ast.walk(part)
                if isinstance(node, ast.Name) and node.id in names
            }
            for each in touched:
                each.notes.append(f"{self._at(statement)}: taken as if «{ast.unparse(statement.test)}» held")
        return statement.body

    def _statement(self, statement: ast.stmt, names: dict[str, Node]) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, value, names)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, names)
            case ast.AugAssign():
                whole = ast.BinOp(_loaded(statement.target), statement.op, statement.value)
                self._assign(statement.target, ast.copy_location(whole, statement), names)
            case ast.Expr(value=value):
                self._evaluated(value, names)

    def _assign(self, target: ast.expr, value: ast.expr, names: dict[str, Node]) -> None:
        node = node_of(target, names)
        if node is not None and node.prefix:
            set_key(node, value, self._at(value), constants=self.constants, names=names, reads=self.read_keys)
            return
        made = self._evaluated(value, names)
        name = dotted(target)
        if made is not None:
            names[name] = made
        elif name:
            names.pop(name, None)
            self.constants.learn(name, value)

    # -- expressions -------------------------------------------------------------------------------------------

    def _evaluated(self, value: ast.expr, names: dict[str, Node]) -> Node | None:
        """The config or section that an expression gives, after what its calls do."""
        if not isinstance(value, ast.Call):
            found = node_of(value, names)
            return found if found is not None and (not found.prefix or found.prefix in SECTIONS) else None
        called = dotted(value.func)
        last = called.rpartition(".")[2]
        if last == "get_cfg" and last not in self.functions:
            return self._new(from_defaults(str(self.path)))
        if called.endswith("model_zoo.get_config") and value.args:
            return self._new(self._merged(from_defaults(str(self.path)), value.args[0], value))
        owner = self._evaluated(value.func.value, names) if isinstance(value.func, ast.Attribute) else None
        if owner is not None:
            return self._method(owner, last, value)
        return self._given_to(last, value, [self._evaluated(each, names) for each in value.args])

    def _given_to(self, name: str, call: ast.Call, given: list[Node | None]) -> Node | None:
        """A call of a function, with the configs among its arguments."""
        if name == "launch" and call.args:
            name, given = dotted(call.args[0]), []
        function = self.functions.get(name)
        if function is not None:
            return self._call(function, dict(zip(_parameters(function), given, strict=False)))
        taken = next((each for each in given if each is not None and not each.prefix), None)
        if taken is None:
            return None
        if name in ("deepcopy", "copy"):
            return self._new(taken.of.config, taken.of.notes)
        if name.endswith("Trainer") or name in _USERS:
            self.used = taken.of
        elif name.startswith("add_") and name.endswith("_config"):
            taken.of.notes.append(f"{self._at(call)}: {name} adds keys and code of a project, which are not known here")
        return None

    def _new(self, config: Config, notes: list[str] | None = None) -> Node:
        tracked = Tracked(config, list(notes or ()))
        self.found.append(tracked)
        return Node(tracked)

    def _call(self, function: ast.FunctionDef, given: Mapping[str, Node | None]) -> Node | None:
        if len(self._followed) > _MOST_CALLS or self._followed[-_DEEPEST:].count(function.name) > 1:
            return None
        self._followed.append(function.name)
        return self._follow(function.body, {name: node for name, node in given.items() if node is not None})

    def _method(self, owner: Node, name: str, call: ast.Call) -> Node | None:
        first = call.args[0] if call.args else None
        if name == "clone":
            return self._new(owner.of.config, owner.of.notes)
        if name == "merge_from_file" and first is not None:
            owner.of.config = self._merged(owner.of.config, first, call)
        elif name == "merge_from_list" and first is not None:
            known, pairs = self.constants.known(first)
            if known and isinstance(pairs, (list, tuple)):
                owner.of.config = overridden(owner.of.config, pairs, str(self._at(call)))
            elif not dotted(first).endswith("opts"):  # those are what the command line gives
                owner.of.notes.append(f"{self._at(call)}: merge_from_list({ast.unparse(first)}) is not known here")
        elif name in ("merge_from_other_cfg", "update"):
            owner.of.notes.append(f"{self._at(call)}: {name} takes keys from elsewhere, which are not known here")
        owner.of.touched += 1
        return None

    def _merged(self, config: Config, file: ast.expr, call: ast.Call) -> Config:
        inner = file.args[0] if isinstance(file, ast.Call) and dotted(file.func).endswith("get_config_file") else file
        known, name = self.constants.known(inner)
        if not known or not isinstance(name, str) or not name:
            note = (
                f"{self._at(call)}: which config file {ast.unparse(file)} is, is not known before the script runs: its "
                "keys are left out. Check the YAML file itself"
            )
            return replace(config, notes=(*config.notes, note))
        return merged_with(config, name, self.path.parent)

    def _at(self, node: ast.AST) -> Origin:
        return Origin(str(self.path), getattr(node, "lineno", 0))


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [each.arg for each in function.args.args]


def _loaded(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and dotted(test.left) == "__name__"
