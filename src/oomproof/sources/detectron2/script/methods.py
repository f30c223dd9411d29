"""Methods of texts, lists and dicts, and of objects whose class is not in the script."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import (
    choosing,
    config_steps,
    elsewhere,
    foreign,
    loading,
    looking_up,
    optimizers,
    training_steps,
)
from oomproof.sources.detectron2.script.contents import (
    Call,
    Foreign,
    Items,
    Method,
    Optimizer,
    Parts,
    Ref,
    Run,
    Section,
    Super,
    Unknown,
)
from oomproof.sources.detectron2.script.knowing import (
    FAILURES,
    LONGEST,
    NotKnown,
    as_value,
    iterate_value,
    require_known,
    shorten_code,
)

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_OF_TEXTS = frozenset(
    ("strip", "lower", "upper", "replace", "split", "startswith", "endswith", "join", "format", "title", "removesuffix",
     "removeprefix", "rstrip", "lstrip", "rsplit", "isdigit", "partition", "rpartition")
)  # fmt: skip
_OF_PATHS = frozenset(("joinpath", "with_suffix", "with_name", "as_posix"))
_SAME_PATH = ("resolve", "absolute", "expanduser")


def call_method(reader: Reader, method: Method, call: Call) -> Any:
    of, name = method.of, method.name
    if isinstance(of, Section):
        return config_steps.call_method(reader, of, name, call)
    if not isinstance(of, Ref):
        return _of_base(reader, of, name, call) if isinstance(of, Super) else _of_plain(reader, of, name, call)
    match reader.memory[of]:
        case Run():
            return training_steps.call_method(reader, of, name, call)
        case Items() as content:
            return _of_list(reader, of, content, name, call)
        case Parts(kind="dict") as content:
            return _of_dict(reader, of, content, name, call)
    # What a class of the script inherits from Detectron2: ``Trainer.build_model(cfg)``.
    return foreign.call_foreign(reader, Foreign(name), call)


def _of_base(reader: Reader, of: Super, name: str, call: Call) -> Any:
    """``super().__init__(cfg)`` of a trainer, ``super().build_hooks()``."""
    bases = [each.last for each in looking_up.classes_above(reader, of) if isinstance(each, Foreign)]
    if name in loading.BUILDERS:
        loading.record(reader, name, call)
    if name == "__init__" and training_steps.is_trainer(bases) and isinstance(of.self, Ref):
        base = next(each for each in bases if each.endswith("Trainer"))
        return training_steps.begin(reader, base, call, self=of.self)
    if name in training_steps.MODELS:
        return training_steps.begin(reader, name, call)
    if name == optimizers.BUILDER:
        return optimizers.note(reader, Optimizer("own"))
    return reader.memory.new(Items(())) if name == "build_hooks" else Unknown(name)


def _of_list(reader: Reader, of: Ref, content: Items, name: str, call: Call) -> Any:
    items, unknown = content.items, Unknown(shorten_code(call.node))
    match name, call.given:
        case "append", (item,):
            reader.memory[of] = Items((*items, item))
        case "insert", (int() as place, item):
            reader.memory[of] = Items((*items[:place], item, *items[place:]))
        case "extend", (more,):
            added = iterate_value(reader, more)
            reader.memory[of] = unknown if added is None else Items((*items, *added))
        case "copy", ():
            return reader.memory.new(content)
        case _:
            if name not in ("index", "count"):
                reader.memory[of] = choosing.one_of(unknown.why, [*items, *call.every])
            return choosing.one_of(unknown.why, items)
    return None


def _of_dict(reader: Reader, of: Ref, content: Parts, name: str, call: Call) -> Any:
    parts = content.parts
    if name in ("keys", "values", "items"):
        return tuple(getattr(parts, name)())
    if name == "copy":
        return reader.memory.new(Parts("dict", parts))
    try:
        found, left = _change_dict(reader, parts, name, call)
    except (NotKnown, IndexError, TypeError):
        if name == "get":
            return choosing.one_of(shorten_code(call.node), [*parts.values(), *call.given[1:]])
        lost = choosing.one_of(shorten_code(call.node), [*parts.values(), *call.every])
        change_dict(reader, of, content, lost)
        return lost
    change_dict(reader, of, content, replace(content, parts=left))
    return found


def change_dict(reader: Reader, of: Ref, before: Parts, after: Parts | Unknown) -> None:
    """A dict that shows the parts of an object changes these."""
    reader.memory[of] = after
    shown = reader.memory.get(before.above) if before.kind == "dict" else None
    if before.above is not None and isinstance(shown, Parts):
        parts = after.parts if isinstance(after, Parts) else {}
        reader.memory[before.above] = replace(shown, parts=parts) if isinstance(after, Parts) else after


def _change_dict(reader: Reader, parts: Any, name: str, call: Call) -> tuple[Any, dict[Any, Any]]:
    """What a method of a dict gives, and what is in it afterwards."""
    if name == "update":
        more = reader.memory.get(call.given[0]) if call.given else Parts("dict")
        if not isinstance(more, Parts) or "**" in call.words:
            raise NotKnown
        return None, {**parts, **more.parts, **call.words}
    if name not in ("get", "pop", "setdefault"):
        raise NotKnown
    key = require_known(reader, call.given[0])
    value = parts.get(key, call.given[1] if len(call.given) > 1 else None)
    if name == "pop":
        return value, {each: part for each, part in parts.items() if each != key}
    return value, {**parts, key: value} if name == "setdefault" else dict(parts)


def _of_plain(reader: Reader, of: Any, name: str, call: Call) -> Any:
    elsewhere.change_list(reader, of, name, call)
    if isinstance(of, PurePath) and name in _SAME_PATH:
        return of
    allowed = (isinstance(of, str) and name in _OF_TEXTS) or (isinstance(of, PurePath) and name in _OF_PATHS)
    try:
        values = [require_known(reader, each) for each in call.given]
        long = any(isinstance(each, (str, list, tuple)) and len(each) > LONGEST for each in (*values, str(of)))
        reaching_in = name == "format" and any(sign in str(of) for sign in "!:.[")
        if not allowed or call.words or long or reaching_in:
            raise NotKnown
        return as_value(reader, getattr(of, name)(*values))
    except NotKnown as reason:
        return Unknown(str(reason) or shorten_code(call.node))
    except FAILURES:
        return Unknown(shorten_code(call.node))
