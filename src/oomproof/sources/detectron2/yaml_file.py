"""A config file as its keys and where they stand, read as Detectron2's YAML reader reads it; nothing is executed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oomproof.errors import InputError
from oomproof.sources.detectron2.expression import evaluate

_MOST_BYTES = 4 << 20
_MOST_KEYS = 10_000


@dataclass(frozen=True)
class Place:
    """Where a key and its value stand in the text: lines count from 1, the rest are offsets of characters."""

    line: int
    column: int
    """of the key"""
    key: int
    start: int
    end: int
    """of the value; equal where there is none"""
    flow: bool
    """inside ``{...}``, where lines do not count"""


@dataclass(frozen=True)
class YamlFile:
    """``leaves`` has every key with a value that is no section; ``places`` has those and the sections."""

    text: str
    base: tuple[str, ...]
    leaves: dict[str, Any]
    sections: tuple[str, ...]
    places: dict[str, Place]


_Reader: Any = type("_Reader", (yaml.SafeLoader,), {})
"""PyYAML's safe reader, which also knows tuples and the arithmetic that Detectron2's own RetinaNet config has"""


def _tuple(loader: yaml.SafeLoader, node: Any) -> tuple[Any, ...]:
    return tuple(loader.construct_sequence(node, deep=True))


def _arithmetic(loader: yaml.SafeLoader, node: Any) -> Any:
    texts = loader.construct_sequence(node, deep=True)
    return evaluate(texts[0]) if len(texts) == 1 else _refuse(node)


def _refuse(node: Any) -> Any:
    raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag} would run code", node.start_mark)


_Reader.add_constructor("tag:yaml.org,2002:python/tuple", _tuple)
_Reader.add_constructor("tag:yaml.org,2002:python/object/apply:eval", _arithmetic)


def read_text(path: Path) -> str:
    """The text of a file, line ends as they are."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB: no config is; check the path")
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; expected a YAML file in it") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8 (byte {error.start}); expected a YAML file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check its permissions") from None


def parse(text: str, name: str) -> YamlFile:
    """Every key of a config text; ``name`` is its name in errors."""
    loader = _Reader(text)
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise InputError(f"{name} holds no config: expected keys such as MODEL: or _BASE_:")
        found = _Walk(loader, name)
        found.section(root, "", False)
    except yaml.YAMLError as error:
        raise InputError(f"{name}{_line(error)}: this is no YAML that Detectron2 reads: {_reason(error)}") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{name} is nested too deeply to be a config") from None
    finally:
        loader.dispose()
    base = found.leaves.pop("_BASE_", [])
    names = (base,) if isinstance(base, str) else tuple(base) if isinstance(base, list) else None
    if names is None or not all(isinstance(each, str) for each in names):
        raise InputError(f"{name}: _BASE_ must be the path of a config, or a list of paths; got {base!r}")
    return YamlFile(text, names, found.leaves, tuple(found.sections), found.places)


class _Walk:
    """Collects what stands under each key; a key that comes twice counts as it does in PyYAML: the last wins."""

    def __init__(self, loader: yaml.SafeLoader, name: str) -> None:
        self.loader, self.name = loader, name
        self.leaves: dict[str, Any] = {}
        self.sections: dict[str, None] = {}
        self.places: dict[str, Place] = {}

    def section(self, node: Any, prefix: str, flow: bool) -> None:
        self.loader.flatten_mapping(node)
        flow = flow or bool(node.flow_style)
        for key_node, value in node.value:
            key = f"{prefix}{self.loader.construct_object(key_node, deep=True)}"
            if len(self.places) > _MOST_KEYS:
                raise InputError(f"{self.name} has more than {_MOST_KEYS} keys: no config has")
            self._forget(key)
            self.places[key] = Place(
                key_node.start_mark.line + 1, key_node.start_mark.column, key_node.start_mark.index,
                value.start_mark.index, value.end_mark.index, flow,
            )  # fmt: skip
            if isinstance(value, yaml.MappingNode):
                self.sections[key] = None
                self.section(value, f"{key}.", flow)
            else:
                self.leaves[key] = self.loader.construct_object(value, deep=True)

    def _forget(self, key: str) -> None:
        if key in self.sections:
            for known in [name for name in self.places if name.startswith(f"{key}.")]:
                self._forget(known)
            del self.sections[key]
        self.leaves.pop(key, None)
        self.places.pop(key, None)


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _reason(error: yaml.YAMLError) -> str:
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return ", ".join(part for part in parts if part) or str(error).splitlines()[0]
