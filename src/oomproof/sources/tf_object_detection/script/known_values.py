"""Values that a script's syntax alone tells: literals, names that were given one, and defaults of its arguments."""

from __future__ import annotations

import ast
from typing import Any

from oomproof.sources.detectron2.script.expression import value_of

_SWITCHES = {"store_true": False, "store_false": True}


def read_dotted_name(node: ast.expr) -> str:
    """``cfg.SOLVER["STEPS"]`` as cfg.SOLVER.STEPS; empty for what is not a name."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            above = read_dotted_name(node.value)
            return f"{above}.{node.attr}" if above else ""
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            above = read_dotted_name(node.value)
            return f"{above}.{key}" if above else ""
    return ""


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
            except (ValueError, KeyError, TypeError, ArithmeticError):
                continue
    return found


class ScriptConstants:
    """Names whose value is known, as the script goes on."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.values: dict[str, Any] = {}

    def learn(self, name: str, value: ast.expr) -> None:
        known, found = self.evaluate(value)
        if known:
            self.values[name] = found
        else:
            self.values.pop(name, None)

    def evaluate(self, value: ast.expr) -> tuple[bool, Any]:
        """(whether the value is known, the value)."""
        try:
            return True, value_of(self._fill_arguments(value), self.values)
        except (ValueError, KeyError, TypeError, ArithmeticError):
            return False, None

    def _fill_arguments(self, value: ast.expr) -> ast.expr:
        """With arguments of the script (``args.batch_size``) as their defaults."""
        arguments = self.arguments

        class Arguments(ast.NodeTransformer):
            def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
                known = isinstance(node.value, ast.Name) and node.value.id in ("args", "opt", "arguments", "flags")
                if known and arguments.get(node.attr) is not None:
                    return ast.copy_location(ast.parse(repr(arguments[node.attr]), mode="eval").body, node)
                return self.generic_visit(node)

        filled: ast.expr = Arguments().visit(ast.parse(ast.unparse(value), mode="eval").body)
        return filled
