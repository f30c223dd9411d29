"""Follows what a script does to a pipeline.config: reading, assignments, overrides and its own functions, in order.

What depends on more than the syntax is not guessed: it is left as it was, and said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import cast

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.script import both_ways, effects
from oomproof.sources.tf_object_detection.script.calls import CallReader, ReturnedConfig
from oomproof.sources.tf_object_detection.script.choosing import choose_config
from oomproof.sources.tf_object_detection.script.config_so_far import (
    ConfigNode,
    Tracked,
    decides_memory,
    list_items,
    names_a_list,
    node_of,
    note_unknown,
)
from oomproof.sources.tf_object_detection.script.folding import as_literal, read_dotted_name
from oomproof.sources.tf_object_detection.script.methods import clear, holds_more
from oomproof.sources.tf_object_detection.script.scopes import assigned_names, ends, is_cut_short
from oomproof.sources.tf_object_detection.script.texts import copy_of

_MADE = "(made)"
"""stands for what a call has given, where a part of that is set"""
_MOST_TURNS = 50
"""of a loop over known values that are followed one by one"""
_MOST_STEPS = 10_000
_CHARACTERS_PER_STEP = 250


class ScriptReader(CallReader):
    def follow(self) -> tuple[Tracked | None, list[Tracked]]:
        """The config that the script is about, or None; and everything with something to tell."""
        self._body(self.tree.body, self.scope)
        called = {read_dotted_name(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        for function in sorted(self.functions.values(), key=lambda each: each.name in called):
            if function.name not in self._calls:  # run by a launcher, such as tf.app.run
                self._call(function, None, self.scope, {})
        return choose_config(self.found, str(self.path)), [*self.found, self.usual]

    def _body(self, body: list[ast.stmt], names: dict[str, ConfigNode]) -> ReturnedConfig | None:
        for number, each in enumerate(body):
            self._count()
            statement = effects.as_choices(each) if isinstance(each, ast.Match) else each
            match statement:
                case ast.Return(value=value):
                    return ReturnedConfig(self._evaluate(value, names) if value is not None else None)
                case ast.If():
                    ended = self._choose(statement, names, body[number + 1 :])
                case ast.With() | ast.AsyncWith():
                    for item in statement.items:
                        if item.optional_vars is None:
                            self._evaluate(item.context_expr, names)
                        self._assign(item.optional_vars, item.context_expr, names)
                    ended = self._body(statement.body, names)
                case ast.For() | ast.AsyncFor() | ast.While():
                    ended = self._loop(statement, names)
                case ast.Try() | ast.TryStar():
                    ended = self._try(statement, names)
                case _:
                    ended = None
                    self._statement(statement, names)
            if ended is not None:
                return ended
        return None

    def _choose(self, statement: ast.If, names: dict[str, ConfigNode], rest: list[ast.stmt]) -> ReturnedConfig | None:
        """The block whose condition holds; where that is not known, both. ``rest``: what comes behind, which a block
        that returns leaves out."""
        self._note_nested(statement.test, names)
        known, truth = self.constants.evaluate(statement.test)
        if _asks_whether_run(statement.test):
            known = truth = True
        if known:
            return self._body(statement.body if truth else statement.orelse, names)
        before = self._remember(names)
        one = self._body(statement.body, names)
        if ends(statement.orelse):
            return one
        after = self._remember(names)
        self._go_back(before, names)
        other = self._body(statement.orelse, names)
        if ends(statement.body):
            return other
        if one is not None and other is None:
            other = self._body(rest, names) or ReturnedConfig()
        elif one is None and other is not None:
            second = self._remember(names)
            self._go_back(after, names)
            one, after = self._body(rest, names) or ReturnedConfig(), second
        why = f"{self._at(statement)}: «{ast.unparse(statement.test)}» decides"
        both_ways.join(after, self.constants, names, self.texts.files, why)
        if one is None or other is None:
            return None
        if one.node is not None and other.node is not None and one.node.of is not other.node.of:
            one.node.of.lose(f"{why} which config is returned, which is not known before the script runs")
        return one if one.node is not None else other

    def _try(self, statement: ast.Try | ast.TryStar, names: dict[str, ConfigNode]) -> ReturnedConfig | None:
        """All goes well, or what a handler changes is not known."""
        ended = self._body([*statement.body, *statement.orelse], names)
        for handler in statement.handlers:
            if not ends(handler.body):
                before = self._remember(names)
                self._body(handler.body, names)
                why = f"{self._at(handler)}: «except» decides"
                both_ways.join(before, self.constants, names, self.texts.files, why)
        return self._body(statement.finalbody, names) or ended

    def _remember(self, names: dict[str, ConfigNode]) -> both_ways.Situation:
        return both_ways.remember(self.found, self.constants, names, self.texts.files)

    def _go_back(self, to: both_ways.Situation, names: dict[str, ConfigNode]) -> None:
        both_ways.go_back(to, self.constants, names, self.texts.files)

    def _count(self) -> None:
        """Statements, and characters of configs that they changed: each change reads the whole text again."""
        changed = [each.config for each in self.found if self._seen.get(id(each)) is not each.config]
        self._seen = {id(each): each.config for each in self.found}
        self._steps += 1 + sum(len(each.text) for each in changed) // _CHARACTERS_PER_STEP
        if self._steps > _MOST_STEPS:
            raise InputError(f"{self.path} does too much to be followed; give its pipeline.config instead")

    def _loop(self, loop: ast.For | ast.AsyncFor | ast.While, names: dict[str, ConfigNode]) -> ReturnedConfig | None:
        """Each turn where they are known; else once, with nothing known of what a turn leaves to the next."""
        self._evaluate(loop.test if isinstance(loop, ast.While) else loop.iter, names)
        turns = self._turns(loop, names) if isinstance(loop, ast.For) and not is_cut_short(loop) else None
        if turns is not None:
            assert isinstance(loop, ast.For)
            for value in turns:
                self._assign(loop.target, value, names)
                if (ended := self._body(loop.body, names)) is not None:
                    return ended
            return self._body(loop.orelse, names)
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            for each in ast.walk(loop.target):
                if isinstance(each, ast.Name):
                    self._name(each, loop.iter, None, names)
        changed = assigned_names(loop)
        in_place = effects.names_changed(loop)
        self._forget(changed, in_place)
        self.turns += 1
        ended = self._body([*loop.body, *loop.orelse], names)
        self.turns -= 1
        self._forget(changed, in_place)
        return ended

    def _forget(self, names: set[str], in_place: set[str]) -> None:
        self.constants.forget(names)
        for name in in_place:
            self.constants.change(name)

    def _turns(self, loop: ast.For, names: dict[str, ConfigNode]) -> list[ast.expr] | None:
        """What the loop's name stands for in each turn; None where that is not known."""
        known, values = self.constants.evaluate(loop.iter)
        if not known and isinstance(loop.iter, (ast.List, ast.Tuple)):
            return loop.iter.elts if not any(isinstance(each, ast.Starred) for each in loop.iter.elts) else None
        if not known:
            pairs = self.constants.pairs_of(loop.iter)
            items = pairs if pairs is not None else list_items(loop.iter, self._node(loop.iter, names))
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
            case ast.Delete(targets=targets):
                for target in targets:
                    node = self._node(target, names)
                    if node is not None and node.path:
                        clear(node, self._at(statement))
                    self.constants.change(effects.changed_in_place(target))
            case ast.Expr(value=value):
                self._evaluate(value, names)
                if isinstance(value, ast.Call) and effects.may_change_configs(value.func, self.imports):
                    self._lose(value, names, f"{self._at(value)}: what {ast.unparse(value.func)} does with it")

    def _assign(self, target: ast.expr | None, value: ast.expr, names: dict[str, ConfigNode]) -> None:
        if target is None:
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            self._assign_each(target.elts, value, names)
            return
        if isinstance(target, (ast.Attribute, ast.Subscript)) and self._assign_part(target, value, names):
            return
        made = self._evaluate(value, names)
        self._name(target, value, made if made is not None and holds_more(made) else None, names)

    def _assign_part(
        self, target: ast.Attribute | ast.Subscript, value: ast.expr, names: dict[str, ConfigNode]
    ) -> bool:
        """Whether it was a field of a config that is set."""
        call = effects.call_in(target)
        if call is not None and (made := self._evaluate(call, names)) is not None:
            names[_MADE] = made
            done = self._assign_part(cast(ast.Attribute, effects.with_name(target, call, _MADE)), value, names)
            del names[_MADE]
            return done
        node = self._node(target, names)
        if node is not None and node.path:
            self._note_nested(value, names)
            self._set(node, value)
            return True
        what = f"{self._at(value)}: what {ast.unparse(target)} is"
        self._lose_perhaps(target, what)
        above = next((each for each in (self._node(of, names) for of in _above(target)) if each is not None), None)
        if above is not None and above.of.known and above.path and names_a_list(above):
            note_unknown(above, value, self._at(value))
        elif above is not None and above.of.known and decides_memory(above.path):
            above.of.lose(f"{what} is not known before the script runs")
        return False

    def _name(self, target: ast.expr, value: ast.expr, made: ConfigNode | None, names: dict[str, ConfigNode]) -> None:
        """``target = value``; ``made``: what of a config the value is."""
        name = read_dotted_name(target)
        before = self.perhaps.pop(name, None)
        self.texts.of_configs.pop(name, None)
        self.texts.files.pop(name, None)
        if made is not None and name:
            names[name] = made
            self.taken.discard(name)
        elif name:
            self.taken.add(name)
            self._note_what_it_may_be(name, value, names)
            names.pop(name, None)
            if before is not None and effects.root_of(value) == name:
                self.perhaps[name] = before
            if self.texts.is_file(value):
                self.texts.files[name] = self.texts.file_of(value)
            match target:
                case ast.Subscript(value=above, slice=ast.Constant(value=str(key))):
                    self.constants.learn_key(read_dotted_name(above), key, value)
                case _:
                    self.constants.learn(name, value)
        elif isinstance(target, ast.Subscript):
            known, key = self.constants.evaluate(target.slice)
            of = read_dotted_name(target.value)
            if known and isinstance(key, str) and of:
                self.constants.learn_key(of, key, value)
            else:
                self.constants.change(of)

    def _note_what_it_may_be(self, name: str, value: ast.expr, names: dict[str, ConfigNode]) -> None:
        """A name for the text of a config, or for something that comes of one in a way that is not followed."""
        if isinstance(value, ast.Call):
            last = read_dotted_name(value.func).rpartition(".")[2]
            given = node_of(value.args[0], names, self.constants) if value.args else None
            if last in ("MessageToString", "str") and given is not None:
                self.texts.of_configs[name] = copy_of(given.of)
                return
        if not self.constants.evaluate(value)[0] and (configs := self._find_mentioned(value, names)):
            self.perhaps[name] = configs

    def _assign_each(self, targets: list[ast.expr], value: ast.expr, names: dict[str, ConfigNode]) -> None:
        """``height, width = 512, 512``: all values are found before the first is given away."""
        filled = self.constants.fill(value)
        parts = filled.elts if isinstance(filled, (ast.Tuple, ast.List)) else []
        if len(parts) != len(targets) or any(isinstance(each, ast.Starred) for each in (*parts, *targets)):
            parts = [value] * len(targets)
        for target, part in zip(targets, [self.constants.fill(each) for each in parts], strict=True):
            self._assign(target, part, names)


def _above(target: ast.expr) -> Iterator[ast.expr]:
    """What an attribute or item is of, from the nearest on."""
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target = target.value
        yield target


def _asks_whether_run(test: ast.expr) -> bool:
    """``if __name__ == "__main__":``"""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
