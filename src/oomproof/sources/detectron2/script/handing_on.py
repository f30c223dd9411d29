"""Functions of the script that other code is handed, as in ``Thread(target=f)``: they may run, and perhaps later."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.script import config_steps, elsewhere
from oomproof.sources.detectron2.script.contents import (
    Call,
    Function,
    Items,
    Partial,
    Parts,
    Ref,
    Section,
)
from oomproof.sources.detectron2.script.knowing import iterate_value, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_AT_ONCE = frozenset(("map", "filter", "sorted", "min", "max", "functools.reduce", "atexit.register", "signal.signal"))
"""call what they are handed at once, or when the training is over"""
_NEVER_CALLS = frozenset(
    ("print", "isinstance", "issubclass", "callable", "id", "type", "repr", "str", "hasattr", "getattr", "setattr",
     "hash", "list", "tuple", "dict", "set", "zip", "enumerate", "vars", "staticmethod", "classmethod", "property",
     "iter", "len", "bool", "partial", "replace", "deepcopy", "copy", "asdict", "set_defaults", "add_argument", "wraps",
     "lru_cache", "cache", "cached_property", "contextmanager", "update_wrapper", "Namespace", "SimpleNamespace")
)  # fmt: skip
_MODULES = frozenset(
    (
        "detectron2",
        "oomproof",
        "fvcore",
        "iopath",
        "torchvision",
        "numpy",
        "cv2",
        "inspect",
        "typing",
        "logging",
        "yaml",
    )
)
"""call what they are handed in the training, or never"""
_ONLY_READS = frozenset(
    ("info", "debug", "warning", "error", "critical", "log", "print", "write", "dump", "save", "add_text",
     "add_hparams", "log_params", "log_hyperparams", "watch", "format", "append", "put", "test", "evaluate")
)  # fmt: skip
"""methods of loggers and the like: they leave a config as it is"""
_MERGES = frozenset(("merge_from_file", "merge_from_list", "merge_from_other_cfg", "update", "setattr", "exec"))
_DEEPEST = 4


def hand_on(reader: Reader, name: str, call: Call) -> None:
    """Other code gets functions: each is run perhaps, now and until the training begins."""
    root, last = name.partition(".")[0], name.rpartition(".")[2]
    if last in _NEVER_CALLS or (root in _MODULES and "." in name) or (root == "torch" and last != "spawn"):
        return
    for function in _functions(reader, call.every):
        _perhaps(reader, function, call)
        if name not in _AT_ONCE:
            reader.handed.append((function, call))


def run_handed(reader: Reader) -> None:
    """A training begins: what was handed to other code may have run since."""
    if reader.runs_handed:
        return
    for function, call in tuple(reader.handed):
        _perhaps(reader, function, call)


def call_unknown(reader: Reader, call: Call) -> None:
    """Something is called of which nothing is known."""
    code = call.node.func if isinstance(call.node, ast.Call) else None
    elsewhere.merge(reader, _name(code) if code is not None else "", call)
    hand_on(reader, ast.unparse(code) if code is not None else "a call", call)
    if isinstance(code, ast.Attribute) and code.attr in _ONLY_READS:
        return
    said = shorten_code(code) if code is not None else "a call"
    for each in call.every:
        if isinstance(each, Section) and not each.prefix:
            why = f"{reader.at(call.node)}: {said} may change the config, which is not known here"
            config_steps.guess(reader, each, why)


def _perhaps(reader: Reader, function: Any, call: Call) -> None:
    before, reader.runs_handed = reader.runs_handed, True
    code, given = shorten_code(call.node), Call(*_likely_arguments(reader, call), call.node)

    def run() -> None:
        reader.call(function, given)

    try:
        reader.either_value(code, run, lambda: None)
    finally:
        reader.runs_handed = before
    configs = [each.of for each in _flatten(reader, call.every) if isinstance(each, Section)]
    if configs:
        _forget_what_it_sets(reader, function, configs, f"{reader.at(call.node)}: {code} may run")


def _functions(reader: Reader, values: tuple[Any, ...]) -> list[Any]:
    return [each for each in _flatten(reader, values) if _function_of(each) is not None]


def _function_of(value: Any) -> Function | None:
    if isinstance(value, Partial):
        return _function_of(value.function)
    return value if isinstance(value, Function) else None


def _flatten(reader: Reader, values: tuple[Any, ...], depth: int = 0) -> list[Any]:
    """The values, and what is in their lists, tuples and dicts."""
    found: list[Any] = []
    for each in values:
        content = reader.memory.get(each)
        inner: tuple[Any, ...] = each if isinstance(each, tuple) else ()
        if isinstance(content, Items):
            inner = content.items
        elif isinstance(content, Parts) and content.kind == "dict":
            inner = tuple(content.parts.values())
        elif isinstance(each, Partial):
            inner = (*each.given, *dict(each.words).values())
        found.append(each)
        found += _flatten(reader, inner, depth + 1) if depth < _DEEPEST else []
    return found


def _likely_arguments(reader: Reader, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What other code is likely to give: ``args`` and ``kwargs``, or what stands behind the function."""
    content = reader.memory.get(call.words.get("kwargs"))
    words = {str(name): value for name, value in content.parts.items()} if isinstance(content, Parts) else {}
    if "args" in call.words:
        return tuple(iterate_value(reader, call.words["args"]) or ()), words
    if isinstance(call.node, ast.Call) and _name(call.node.func) in ("map", "filter", "starmap", "imap"):
        return (), words  # one of many
    places = [place for place, each in enumerate(call.given) if _function_of(each) is not None]
    return tuple(call.given[places[0] + 1 :]) if places else (), words


def _forget_what_it_sets(reader: Reader, function: Any, configs: list[Ref], why: str) -> None:
    """Other code has the config as well, and may give it to the function in ways that are not known here."""
    body = _function_of(function)
    if body is None:
        return
    for node in ast.walk(body.node):
        if isinstance(node, ast.Call) and _name(node.func) in _MERGES:
            for ref in configs:
                config_steps.lose_all(reader, ref, f"{why}: {shorten_code(node)}")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            for key in (key for key in DEFAULTS if f".{ast.unparse(node)}".endswith(f".{key}")):
                for ref in configs:
                    config_steps.forget(reader, ref, key, f"{why}: {key} is not known before the script runs")


def _name(code: ast.expr) -> str:
    return code.attr if isinstance(code, ast.Attribute) else code.id if isinstance(code, ast.Name) else ""
