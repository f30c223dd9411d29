"""Decorators of a followed script: those of the script are called, as Python calls them; others are known or said."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import calling, config_steps, looking_up, with_blocks
from oomproof.sources.detectron2.script.contents import (
    REMEMBERS,
    Call,
    Class,
    Content,
    Foreign,
    Function,
    Made,
    Method,
    Partial,
    Ref,
    Section,
    Unknown,
)
from oomproof.sources.detectron2.script.knowing import shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_MARKS = frozenset(("staticmethod", "classmethod", *REMEMBERS, *looking_up.PROPERTIES, *with_blocks.GENERATORS))
_OF_PROPERTIES = frozenset(("setter", "getter", "deleter"))
_HARMLESS_MODULES = frozenset(
    ("detectron2", "oomproof", "fvcore", "iopath", "torch", "torchvision", "numpy", "numba", "click", "hydra", "typer",
     "fire", "attr", "attrs", "pydantic", "typing_extensions", "line_profiler", "memory_profiler", "tqdm")
)  # fmt: skip
"""modules whose decorators call a function as it is written, or with what a command line gives"""
_HARMLESS_NAMES = frozenset(
    ("wraps", "lru_cache", "cache", "contextmanager", "asynccontextmanager", "dataclass", "no_grad", "inference_mode",
     "record", "overload", "override", "final", "abstractmethod", "total_ordering", "unique", "configurable", "profile",
     "register", "command", "group", "option", "argument", "define", "frozen", "attrs", "s")
)  # fmt: skip
_DISPATCHES = frozenset(("singledispatch", "singledispatchmethod"))
"""of Python, but the function that is called may be another"""


def define_function(reader: Reader, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Ref) -> Any:
    decorators = [(each, _evaluate(reader, each, scope)) for each in node.decorator_list]
    value: Any = reader.function(node, scope)
    for code, decorator in reversed(decorators):
        value = _decorate(reader, code, decorator, value)
    return value


def define_class(reader: Reader, node: ast.ClassDef, scope: Ref) -> Any:
    decorators = [(each, _evaluate(reader, each, scope)) for each in node.decorator_list]
    value: Any = calling.define_class(reader, node, scope)
    for code, decorator in reversed(decorators):
        if _is_of_script(reader, decorator):
            value = reader.call(decorator, Call((value,), {}, code))
    return value


def _evaluate(reader: Reader, node: ast.expr, scope: Ref) -> Any:
    """The decorator; of ``@torch.no_grad()`` the function that makes it, since only its name tells what it does."""
    if isinstance(node, ast.Call):
        maker = reader.evaluate(node.func, scope)
        if isinstance(maker, (Foreign, Unknown)):
            return maker
    elif isinstance(node, ast.Attribute) and node.attr in _OF_PROPERTIES:
        of = reader.evaluate(node.value, scope)
        return Method(of, node.attr) if isinstance(of, Function) else Unknown(shorten_code(node))
    return reader.evaluate(node, scope)


def _is_of_script(reader: Reader, decorator: Any) -> bool:
    if isinstance(decorator, Partial):
        return _is_of_script(reader, decorator.function)
    is_object = isinstance(looking_up.find_method(reader, decorator, "__call__"), Function)
    return isinstance(decorator, Function) or isinstance(reader.memory.get(decorator), Class) or is_object


def _decorate(reader: Reader, code: ast.expr, decorator: Any, value: Any) -> Any:
    if _is_of_script(reader, decorator):
        return reader.call(decorator, Call((value,), {}, code))
    if not isinstance(value, Function):
        marked = isinstance(decorator, Foreign) and decorator.last in looking_up.PROPERTIES
        return Unknown(shorten_code(code)) if marked else value
    if isinstance(decorator, Method) and isinstance(decorator.of, Function) and decorator.name in _OF_PROPERTIES:
        return _change_property(decorator.of, decorator.name, value)
    if isinstance(decorator, Foreign) and decorator.last in _MARKS:
        return replace(value, marks=value.marks | {decorator.last})
    return value if _is_harmless(decorator) else replace(value, around=shorten_code(code))


def _change_property(old: Function, how: str, function: Function) -> Function:
    if how == "setter":
        return replace(old, setter=function)
    return replace(function, marks=old.marks, setter=old.setter) if how == "getter" else old


def _is_harmless(decorator: Any) -> bool:
    if not isinstance(decorator, Foreign) or decorator.last in _DISPATCHES:
        return False
    root = decorator.name.partition(".")[0]
    return root in _HARMLESS_MODULES or root in sys.stdlib_module_names or decorator.last in _HARMLESS_NAMES


# -- functions inside a decorator of other code --------------------------------------------------------------------


def remember_configs(reader: Reader) -> dict[Ref, Content]:
    return {ref: reader.memory[ref] for ref in reader.configs if ref in reader.memory}


def after_call(reader: Reader, function: Function, value: Any, before: dict[Ref, Content]) -> Any:
    """A config that the function makes or changes may be another; what it computes is not known."""
    name = getattr(function.node, "name", "lambda")
    said = (
        f"{reader.at(function.node)}: @{function.around} around {name} may change the config, which is not known here"
    )
    for ref in dict.fromkeys(reader.configs):
        made = reader.memory.get(ref)
        if isinstance(made, Made) and before.get(ref) is not made:
            config_steps.guess(reader, Section(ref), said)
    plain = isinstance(value, (bool, int, float, str, tuple))
    return Unknown(f"@{function.around} around {name}") if plain else value
