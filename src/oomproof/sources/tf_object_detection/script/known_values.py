"""Values that a script's syntax alone tells: literals, names that were given one, and defaults of its arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from oomproof.sources.detectron2.script.expression import has_more_parts, value_of
from oomproof.sources.tf_object_detection.script.folding import (
    ARGUMENTS,
    MOST_PARTS,
    WRONG,
    as_literal,
    fold,
    length_of,
    read_dotted_name,
)

_SWITCHES = {"store_true": False, "store_false": True}
UNNAMED = "**"
"""the key of what a dictionary has under keys that are not known"""


def literal_defaults(tree: ast.Module) -> dict[str, Any]:
    """What ``parser.add_argument("--batch-size", default=4)`` gives where the command line does not, by name."""
    found: dict[str, Any] = {}
    seen: set[str] = set()
    several: set[str] = set()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if any(_gives_values(each) for each in calls):
        return {}
    for node in calls:
        if not read_dotted_name(node.func).endswith("add_argument"):
            continue
        flags = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        given = {word.arg: word.value for word in node.keywords if word.arg}
        longest = max(flags, key=len, default="").lstrip("-").replace("-", "_")
        named = given.get("dest")
        name = named.value if isinstance(named, ast.Constant) else longest
        if name in seen:
            several.add(str(name))
        seen.add(str(name))
        action = given.get("action")
        if isinstance(action, ast.Constant) and action.value in _SWITCHES:
            found[str(name)] = _SWITCHES[action.value]
        elif "default" in given:
            try:
                found[str(name)] = value_of(given["default"], {})
            except WRONG:
                continue
    return {name: value for name, value in found.items() if name not in several}


def _gives_values(call: ast.Call) -> bool:
    """Whether a script itself says what its arguments are: ``parser.parse_args(["--batch-size", "4"])``."""
    name = read_dotted_name(call.func).rpartition(".")[2]
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "args")]
    empty = all(isinstance(each, (ast.List, ast.Tuple)) and not each.elts for each in given)
    return name == "set_defaults" or (name in ("parse_args", "parse_known_args") and not empty)


class ScriptConstants:
    """Names whose value is known, as the script goes on: ``name``, ``name.attribute``, ``name.key`` of a dictionary.

    ``look_up`` tells what is known of an expression beside names: (whether it is, the value).
    """

    def __init__(
        self, arguments: dict[str, Any], look_up: Callable[[ast.expr], tuple[bool, Any]] = lambda node: (False, None)
    ) -> None:
        self.arguments, self.look_up = arguments, look_up
        self.own: set[str] = set()
        """names of functions that the script defines"""
        self.values: dict[str, Any] = {}
        self.calls: dict[str, ast.Call] = {}
        """by name: the call that it is given"""
        self.dictionaries: dict[str, dict[str, ast.expr]] = {}
        """by name: what the script says of each key"""
        self._same: dict[str, set[str]] = {}
        """by name: all names of the same list or dictionary, where it has several"""
        self._with_parts: set[str] = set()
        """names of which a part has been known: few, so that the others are forgotten at once"""

    def learn(self, name: str, value: ast.expr) -> None:
        known, found = self.evaluate(value)
        other = read_dotted_name(value)
        is_list = isinstance(found, list) or length_of(other) in self.values
        shares = other != name and (other in self.dictionaries or other in self._with_parts or is_list)
        entries = [each for each in self.values if each.startswith(f"{other}.")] if other in self._with_parts else []
        parts = {each.removeprefix(other): self.values[each] for each in entries}
        keys = self.dictionaries.get(other)
        self.forget([name])
        if other and shares:
            self._share(name, other)
            self.values.update({f"{name}{part}": each for part, each in parts.items()})
            self._with_parts.update([name] if parts else [])
            if keys is not None:
                self.dictionaries[name] = dict(keys)
        if known:
            self.values[name] = found
            self._with_parts.update(name[:at] for at, sign in enumerate(name) if sign == ".")
        if isinstance(value, ast.Call):
            self.calls[name] = value
        match value:
            case ast.List(elts=items) | ast.Tuple(elts=items) if not any(
                isinstance(each, ast.Starred) for each in items
            ):
                self.values[length_of(name)] = len(items)
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words) if all(each.arg for each in words):
                self.dictionaries[name] = {}
                for word in words:
                    self.learn_key(name, str(word.arg), word.value)
        if isinstance(value, ast.Dict):
            self.dictionaries[name] = {}
            for key, each in zip(value.keys, value.values, strict=True):
                self.learn_key(name, self.read_key(key), each)

    def pairs_of(self, value: ast.expr) -> list[ast.expr] | None:
        """Keys and values of ``name.items()``; None where they are not known."""
        match value:
            case ast.Call(func=ast.Attribute(value=of, attr="items"), args=[]):
                keys = self.dictionaries.get(read_dotted_name(of), {UNNAMED: value})
                if UNNAMED not in keys:
                    pairs = [ast.Tuple([ast.Constant(key), each], ast.Load()) for key, each in keys.items()]
                    return [ast.fix_missing_locations(ast.copy_location(each, value)) for each in pairs]
        return None

    def state(self) -> tuple[dict[str, Any], dict[str, dict[str, ast.expr]]]:
        return dict(self.values), {name: dict(keys) for name, keys in self.dictionaries.items()}

    def go_back(self, to: tuple[dict[str, Any], dict[str, dict[str, ast.expr]]], but: Iterable[str]) -> None:
        """To what was known before, ``but`` for these names and their parts, which stay as they are now."""
        kept = tuple(f"{name}." for name in but)
        for name in but:
            to[0].pop(length_of(name), None)
        for now, before in ((self.values, dict(to[0])), (self.dictionaries, dict(to[1]))):
            stay = {name: each for name, each in now.items() if f"{name}.".startswith(kept)}
            now.clear()
            now.update({name: each for name, each in before.items() if not f"{name}.".startswith(kept)})
            now.update(stay)

    def read_key(self, key: ast.expr | None) -> str:
        """Of a dictionary, where it is known."""
        known, name = self.evaluate(key) if key is not None else (False, None)
        return str(name) if known else UNNAMED

    def learn_key(self, name: str, key: str, value: ast.expr) -> None:
        """``name[key] = value``."""
        others = self._same.get(name, {name}) - {name}
        self.learn(f"{name}.{key}", value)
        for other in others:
            self.forget([f"{other}.{key}"])
            self.dictionaries.pop(other, None)
        if name in self.dictionaries:
            self.dictionaries[name][key] = self.fill(value)

    def fill(self, value: ast.expr) -> ast.expr:
        """A literal where the value is known now; it may be another later."""
        known, found = self.evaluate(value)
        try:
            return as_literal(found, value) if known else value
        except ValueError:
            return value

    def _share(self, name: str, other: str) -> None:
        together = self._same.get(other, {other})
        together.add(name)
        self._same[name] = self._same[other] = together

    def change(self, name: str) -> None:
        """What a name stands for is changed in place, in a way that is not followed: all its names are forgotten."""
        for start in {name, *(name[:at] for at, sign in enumerate(name) if sign == ".")}:
            for each in self._same.get(start, {start}) | {name}:
                self._drop(each)

    def append(self, name: str, value: ast.expr) -> None:
        """``name.append(value)``"""
        there, (known, new) = self.values.get(name), self.evaluate(value)
        self.change(name)
        if known and isinstance(there, list) and name not in self._same and not has_more_parts(new, MOST_PARTS):
            self.values[name] = [*there, new]

    def forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._same.pop(name, set()).discard(name)
            self._drop(name)

    def _drop(self, name: str) -> None:
        of, _, argument = name.partition(".")
        if of in ARGUMENTS and argument:
            self.arguments.pop(argument, None)
        self.values.pop(name, None)
        self.values.pop(length_of(name), None)
        if name in self._with_parts:
            for each in [known for known in self.values if known.startswith(f"{name}.")]:
                del self.values[each]
        self.dictionaries.pop(name, None)
        self.calls.pop(name, None)

    def evaluate(self, value: ast.expr) -> tuple[bool, Any]:
        """(whether the value is known, the value)."""
        try:
            found = value_of(fold(value, self.values, self.arguments, self.look_up, self.own), self.values)
        except (*WRONG, SyntaxError):  # "*args" and "a:b" are no expressions by themselves
            return False, None
        return (False, None) if has_more_parts(found, MOST_PARTS) else (True, found)
