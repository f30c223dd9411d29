"""Values that a script's syntax alone tells: literals, names that were given one, and defaults of its arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from oomproof.sources.detectron2.script.expression import has_more_parts, value_of
from oomproof.sources.tf_object_detection.script.folding import MOST_PARTS, WRONG, as_literal, fold, read_dotted_name

_SWITCHES = {"store_true": False, "store_false": True}
UNNAMED = "**"
"""the key of what a dictionary has under keys that are not known"""


def literal_defaults(tree: ast.Module) -> dict[str, Any]:
    """What ``parser.add_argument("--batch-size", default=4)`` gives where the command line does not, by name."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and read_dotted_name(node.func).endswith("add_argument")):
            continue
        flags = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        given = {word.arg: word.value for word in node.keywords if word.arg}
        longest = max(flags, key=len, default="").lstrip("-").replace("-", "_")
        named = given.get("dest")
        name = named.value if isinstance(named, ast.Constant) else longest
        action = given.get("action")
        if isinstance(action, ast.Constant) and action.value in _SWITCHES:
            found[str(name)] = _SWITCHES[action.value]
        elif "default" in given:
            try:
                found[str(name)] = value_of(given["default"], {})
            except WRONG:
                continue
    return found


class ScriptConstants:
    """Names whose value is known, as the script goes on: ``name``, ``name.attribute``, ``name.key`` of a dictionary.

    ``look_up`` tells what is known of an expression beside names: (whether it is, the value).
    """

    def __init__(
        self, arguments: dict[str, Any], look_up: Callable[[ast.expr], tuple[bool, Any]] = lambda node: (False, None)
    ) -> None:
        self.arguments, self.look_up = arguments, look_up
        self.values: dict[str, Any] = {}
        self.calls: dict[str, ast.Call] = {}
        """by name: the call that it is given"""
        self.dictionaries: dict[str, dict[str, ast.expr]] = {}
        """by name: what the script says of each key"""
        self._with_parts: set[str] = set()
        """names of which a part has been known: few, so that the others are forgotten at once"""

    def learn(self, name: str, value: ast.expr) -> None:
        known, found = self.evaluate(value)
        self.forget([name])
        if known:
            self.values[name] = found
            self._with_parts.update(name[:at] for at, sign in enumerate(name) if sign == ".")
        if isinstance(value, ast.Call):
            self.calls[name] = value
        if isinstance(value, ast.Dict):
            self.dictionaries[name] = {}
            for key, each in zip(value.keys, value.values, strict=True):
                self.learn_key(name, self.read_key(key), each)

    def read_key(self, key: ast.expr | None) -> str:
        """Of a dictionary, where it is known."""
        known, name = self.evaluate(key) if key is not None else (False, None)
        return str(name) if known else UNNAMED

    def learn_key(self, name: str, key: str, value: ast.expr) -> None:
        """``name[key] = value``."""
        self.learn(f"{name}.{key}", value)
        if name in self.dictionaries:
            self.dictionaries[name][key] = self.fill(value)

    def fill(self, value: ast.expr) -> ast.expr:
        """A literal where the value is known now; it may be another later."""
        known, found = self.evaluate(value)
        try:
            return as_literal(found, value) if known else value
        except ValueError:
            return value

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.values.pop(name, None)
            if name in self._with_parts:
                for each in [known for known in self.values if known.startswith(f"{name}.")]:
                    del self.values[each]
            self.dictionaries.pop(name, None)
            self.calls.pop(name, None)

    def evaluate(self, value: ast.expr) -> tuple[bool, Any]:
        """(whether the value is known, the value)."""
        try:
            found = value_of(fold(value, self.values, self.arguments, self.look_up), self.values)
        except WRONG:
            return False, None
        return (False, None) if has_more_parts(found, MOST_PARTS) else (True, found)
