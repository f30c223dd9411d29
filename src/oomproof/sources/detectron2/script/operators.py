"""Operators on objects of the script's own classes: ``a + b``, ``a[k] = v`` and the like are calls of their methods."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import looking_up
from oomproof.sources.detectron2.script.contents import Call, Class, Function, Parts, Ref, Unknown

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_NAMES: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitOr: "or", ast.BitAnd: "and",
    ast.BitXor: "xor", ast.MatMult: "matmul",
}  # fmt: skip
_DICTS = frozenset(("dict", "OrderedDict", "UserDict", "defaultdict"))


@dataclass(frozen=True)
class DictPlace:
    """``a["batch"]`` of an object that is a dict, beside ``a.batch``."""

    key: Any


def call_operator(reader: Reader, node: ast.BinOp, left: Any, right: Any, *, in_place: bool = False) -> tuple[Any, ...]:
    """What the method of one side gives; empty where neither has one."""
    name = _NAMES[type(node.op)]
    ways = [(left, f"__{name}__", right), (right, f"__r{name}__", left)]
    for of, method, other in [(left, f"__i{name}__", right), *ways] if in_place else ways:
        if found := call_own_method(reader, of, method, (other,), node):
            return found
    return ()


def call_own_method(reader: Reader, of: Any, name: str, given: tuple[Any, ...], node: ast.AST) -> tuple[Any, ...]:
    """What a method of the object's own class gives; empty where it has none."""
    method = looking_up.find_method(reader, of, name)
    return (reader.call(method, Call((of, *given), {}, node)),) if isinstance(method, Function) else ()


def place_in(reader: Reader, of: Any, key: Any) -> Any:
    """Under what an object keeps ``of[key]``: a dict with attributes as its items has one place for both."""
    cls = looking_up.find_class(reader, of)
    is_class = isinstance(reader.memory.get(cls), Class)
    shared = any(looking_up.find_attribute(reader, cls, name) for name in ("__getattr__", "__setattr__"))
    return DictPlace(key) if is_class and not shared else key


def look_up_item(reader: Reader, of: Ref, key: Any) -> Any:
    """``of[key]`` of an object whose class is a dict."""
    content, place = reader.memory.get(of), place_in(reader, of, key)
    is_dict = bool(_DICTS & set(looking_up.foreign_bases(reader, looking_up.find_class(reader, of))))
    known = is_dict and isinstance(content, Parts) and place in content.parts
    return content.parts[place] if known and isinstance(content, Parts) else Unknown(f"[{key!r}]")
