"""What of Python itself is worked out in a followed script: builtins, paths, partial functions, copies of records."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import (
    arguments,
    calling,
    choosing,
    config_steps,
    copying,
    elsewhere,
    looking_up,
)
from oomproof.sources.detectron2.script.contents import (
    Call,
    Foreign,
    Function,
    Items,
    Method,
    Partial,
    Parts,
    Section,
    Unknown,
)
from oomproof.sources.detectron2.script.expression import round_number
from oomproof.sources.detectron2.script.knowing import (
    FAILURES,
    LONGEST,
    NOT_PLAIN,
    NotKnown,
    as_value,
    iterate_value,
    require_known,
    shorten_code,
)

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_PLAIN: dict[str, Callable[..., Any]] = {
    "int": int, "float": float, "bool": bool, "str": str, "round": round_number, "abs": abs, "min": min, "max": max,
    "sum": sum, "len": len, "sorted": sorted, "reversed": lambda items: list(reversed(items)), "all": all, "any": any,
    "os.path.join": lambda *parts: posixpath.join(*map(str, parts)),
    "os.path.basename": lambda path: posixpath.basename(str(path)),
    "os.path.dirname": lambda path: posixpath.dirname(str(path)),
    "os.path.abspath": str, "os.path.realpath": str, "os.path.expanduser": str, "os.fspath": str,
    "Path": PurePosixPath, "pathlib.Path": PurePosixPath,
    "math.ceil": lambda number: -int(-number // 1), "math.floor": lambda number: int(number // 1),
}  # fmt: skip
"""functions of plain values. No path is looked up: a relative one stays relative"""


def has(called: Foreign) -> bool:
    return called.name in _PLAIN or called.last in _OTHERS


def call_python(reader: Reader, called: Foreign, call: Call) -> Any:
    try:
        if called.name in _PLAIN:
            return as_value(reader, _plain(reader, called.name, call))
        return _OTHERS[called.last](reader, call)
    except NotKnown as reason:
        return Unknown(str(reason) or shorten_code(call.node))
    except FAILURES:
        return Unknown(shorten_code(call.node))


def _plain(reader: Reader, name: str, call: Call) -> Any:
    values = [require_known(reader, each) for each in call.given]
    if call.words or any(isinstance(each, (str, list, tuple)) and len(each) > LONGEST for each in values):
        raise NotKnown
    return _PLAIN[name](*values)


def _items(reader: Reader, value: Any) -> list[Any]:
    found = iterate_value(reader, value)
    if found is None:
        raise NotKnown
    return found


def _list(reader: Reader, call: Call) -> Any:
    return reader.memory.new(Items(tuple(_items(reader, call.given[0]) if call.given else ())))


def _set(reader: Reader, call: Call) -> Any:
    made = copying.make_set(reader, _items(reader, call.given[0]) if call.given else [])
    if made is None:
        raise NotKnown
    return made


def _tuple(reader: Reader, call: Call) -> Any:
    return tuple(_items(reader, call.given[0]) if call.given else ())


def _range(reader: Reader, call: Call) -> Any:
    numbers = range(*(require_known(reader, each) for each in call.given))
    if len(numbers) > LONGEST:
        raise NotKnown
    return tuple(numbers)


def _zip(reader: Reader, call: Call) -> Any:
    return tuple(zip(*(_items(reader, each) for each in call.given), strict=False))


def _enumerate(reader: Reader, call: Call) -> Any:
    return tuple(enumerate(_items(reader, call.given[0]), require_known(reader, call.get("start", 1, 0))))


def _dict(reader: Reader, call: Call) -> Any:
    content = reader.memory.get(call.given[0]) if call.given else Parts("dict")
    if not isinstance(content, Parts) or "**" in call.words:
        raise NotKnown
    return reader.memory.new(Parts("dict", {**content.parts, **call.words}))


def _getattr(reader: Reader, call: Call) -> Any:
    of = call.given[0]
    try:
        name = str(require_known(reader, call.given[1]))
    except NotKnown as reason:
        every = [Unknown("", choosing.find_configs(of)), *choosing.methods_of(reader, of), *call.given[2:]]
        return choosing.one_of(str(reason), every)
    found = looking_up.attribute(reader, of, name)
    absent = isinstance(found, Unknown) and isinstance(reader.memory.get(of), Parts) and found.why == name
    return call.given[2] if len(call.given) > 2 and (absent or isinstance(found, Method)) else found


def _setattr(reader: Reader, call: Call) -> Any:
    of, name, value = call.given
    try:
        reader.set_attribute(of, str(require_known(reader, name)), value, call.node)
    except NotKnown:
        if isinstance(of, Section):
            config_steps.lose(reader, of, call.node)
        elif isinstance(of, Unknown):
            elsewhere.lose_any(reader, of, call.node)
        else:
            choosing.lose_parts(reader, of, value, shorten_code(call.node))


def _vars(reader: Reader, call: Call) -> Any:
    content = reader.memory.get(call.given[0])
    if not isinstance(content, Parts):
        raise NotKnown
    return show_parts(reader, call.given[0], content)


def show_parts(reader: Reader, of: Any, content: Parts) -> Any:
    """``vars(args)`` and ``args.__dict__``: a dict whose changes are those of the object."""
    parts = dict(content.parts)
    if content.kind == "arguments":
        names = dict.fromkeys((*reader.arguments, *content.parts))
        parts = {name: arguments.argument(reader, content, name) for name in names}
    return reader.memory.new(Parts("dict", parts, of))


def _isinstance(reader: Reader, call: Call) -> Any:
    value, kinds = call.given
    content = reader.memory.get(value)
    kind: Any = type(value)
    if isinstance(content, Items):
        kind = list
    elif isinstance(content, Parts) and content.kind == "dict":
        kind = dict
    elif isinstance(content, Unknown) or content is not None or isinstance(value, NOT_PLAIN):
        raise NotKnown
    names = [each.name for each in (kinds if isinstance(kinds, tuple) else (kinds,)) if isinstance(each, Foreign)]
    if not names or not set(names) <= _KINDS.keys() or isinstance(value, Unknown):
        raise NotKnown
    return any(issubclass(kind, _KINDS[each]) for each in names)


_KINDS: dict[str, type] = {
    "dict": dict, "list": list, "tuple": tuple, "str": str, "int": int, "float": float, "bool": bool,
}  # fmt: skip


def _mark(name: str) -> Callable[[Any, Call], Any]:
    """``build_train_loader = classmethod(function)``"""

    def mark(reader: Reader, call: Call) -> Any:
        function = call.given[0]
        if not isinstance(function, Function):
            raise NotKnown
        return replace(function, marks=function.marks | {name})

    return mark


def _type(reader: Reader, call: Call) -> Any:
    cls = looking_up.find_class(reader, call.given[0])
    if cls is None or len(call.given) != 1:
        raise NotKnown
    return cls


def _partial(reader: Reader, call: Call) -> Any:
    return Partial(call.given[0], call.given[1:], tuple(call.words.items()))


def _replace(reader: Reader, call: Call) -> Any:
    content = reader.memory.get(call.given[0])
    if not isinstance(content, Parts):
        raise NotKnown
    made = reader.memory.new(Parts(content.kind, {**content.parts, **call.words}, content.above))
    calling.after_init(reader, made, (), call.node)  # as dataclasses do
    return made


_OTHERS: dict[str, Callable[[Any, Call], Any]] = {
    "list": _list, "set": _set, "frozenset": _set, "tuple": _tuple, "range": _range, "zip": _zip, "dict": _dict,
    "enumerate": _enumerate, "getattr": _getattr, "setattr": _setattr, "vars": _vars, "asdict": _vars, "type": _type,
    "partial": _partial, "replace": _replace, "isinstance": _isinstance, "property": _mark("property"),
    "classmethod": _mark("classmethod"), "staticmethod": _mark("staticmethod"),
}  # fmt: skip
