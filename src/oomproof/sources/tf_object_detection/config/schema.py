"""The fields of a pipeline.config: messages, types, defaults, oneofs and enums, as facts in ``fields/*.txt``.

They are those of tf-models-research-object-detection 2.8.0.post1, the newest package, and of the repository
tensorflow/models; fields marked ``older`` are only in the package, ``newer`` only in the repository.

>>> field = ROOT.fields["train_config"].message.fields["batch_size"]
>>> field.type, field.default
('uint32', 32)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

_IMPLICIT_DEFAULTS = {"int32": 0, "uint32": 0, "float": 0.0, "bool": False, "string": ""}


@dataclass(frozen=True)
class FieldType:
    """``label`` is "", repeated or map (repeated messages of a key and a value)."""

    name: str
    type: str
    label: str = ""
    default: Any = None
    oneof: str = ""
    deprecated: bool = False
    version: str = ""
    """older or newer, where not every version has the field"""
    enum: Mapping[str, int] = field(default_factory=dict)
    """names and numbers of the values, for an enum"""
    message: MessageType | None = field(default=None, repr=False, compare=False)
    """for a message"""

    @property
    def is_repeated(self) -> bool:
        return self.label != ""


@dataclass(frozen=True)
class MessageType:
    name: str
    fields: Mapping[str, FieldType]

    def oneof_members(self, oneof: str) -> tuple[str, ...]:
        return tuple(name for name, each in self.fields.items() if oneof and each.oneof == oneof)


@dataclass(frozen=True)
class _Facts:
    messages: dict[str, list[str]] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)


@cache
def message_type(name: str = "TrainEvalPipelineConfig") -> MessageType:
    """A message of the API with its fields; by default that of the whole file."""
    lines = _facts().messages[name]
    return MessageType(name, {each.name: each for each in (_field(line) for line in lines)})


def every_message() -> Iterator[MessageType]:
    yield from (message_type(name) for name in _facts().messages)


@lru_cache(256)
def paths_of(name: str) -> tuple[str, ...]:
    """Where in a config fields of a name are, nearest to the top first; each message is looked at once."""
    found: list[str] = []
    seen: set[str] = set()
    waiting = [("", message_type())]
    for prefix, kind in waiting:
        for each in kind.fields.values():
            index = "[0]" if each.is_repeated and each.message else ""
            if each.name == name:
                found.append(f"{prefix}{name}")
            if each.message is not None and each.type not in seen:
                seen.add(each.type)
                waiting.append((f"{prefix}{each.name}{index}.", each.message))
    return tuple(found)


def _field(line: str) -> FieldType:
    """Of «name: [repeated|map] TYPE [= DEFAULT] [oneof NAME] [deprecated] [older|newer]»."""
    name, _, rest = line.partition(": ")
    words = rest.split()
    label = words.pop(0) if words[0] in ("repeated", "map") else ""
    kind = words.pop(0)
    enum = _facts().enums.get(kind, {})
    message = message_type(kind) if kind in _facts().messages else None
    default = _IMPLICIT_DEFAULTS.get(kind, next(iter(enum), None))
    oneof = version = ""
    deprecated = False
    while words:
        word = words.pop(0)
        if word == "=":
            default = _default(words.pop(0), kind)
        elif word == "oneof":
            oneof = words.pop(0)
        elif word == "deprecated":
            deprecated = True
        else:
            version = word
    return FieldType(name, kind, label, default, oneof, deprecated, version, enum, message)


def _default(word: str, kind: str) -> Any:
    readers = {"int32": int, "uint32": int, "float": float}
    if kind in readers:
        return readers[kind](word)
    return word == "true" if kind == "bool" else word.strip('"')


@cache
def _facts() -> _Facts:
    found = _Facts()
    for file in sorted(files(__package__).joinpath("fields").iterdir(), key=lambda each: each.name):
        _read_facts(file.read_text(encoding="utf-8"), found)
    return found


def _read_facts(text: str, found: _Facts) -> None:
    kind = name = ""
    for line in text.splitlines():
        if line.startswith("  ") and kind == "message":
            found.messages[name].append(line.strip())
        elif line.startswith("  "):
            value, _, number = line.strip().partition(" = ")
            found.enums[name][value] = int(number)
        elif line and not line.startswith("#"):
            kind, name = line.split()
            if kind == "message":
                found.messages[name] = []
            else:
                found.enums[name] = {}


ROOT = message_type()
