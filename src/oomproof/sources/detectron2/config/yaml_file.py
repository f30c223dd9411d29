"""A config file as its keys and where they stand, read as Detectron2's YAML reader reads it; nothing is executed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from oomproof.errors import InputError
from oomproof.files.regular import NotAFile, read_regular
from oomproof.sources.detectron2.script.expression import evaluate_text

_MOST_BYTES = 4 << 20
_MOST_YAML = 128 << 10
"""characters: Detectron2 dumps all its keys in 10 KiB, and PyYAML takes seconds for a megabyte"""
_MOST_KEYS = 10_000
_MOST_VALUES = 100_000
"""with every alias and merge written out, which a few lines can make more than any memory holds"""


@dataclass(frozen=True)
class YamlPlace:
    """Where a key and its value stand in the text. Lines count from 1; the rest are offsets of characters."""

    line: int
    column: int
    colon: int
    """behind the colon of the key"""
    start: int
    end: int
    """of the value, comments behind it apart; equal where there is none"""
    form: str
    """of the value: plain, quoted, block text, flow or block list, flow or block section; or elsewhere: an alias"""
    inside_flow: bool
    """between braces, where a comma ends a value"""


@dataclass(frozen=True)
class YamlFile:
    """``leaves`` has every key with a value that is not a section; ``places`` has those, the sections, and as "" all"""

    text: str
    base: tuple[str, ...]
    leaves: dict[str, Any]
    places: dict[str, YamlPlace]


_SECTION = "tag:yaml.org,2002:map"
"""and not a set, which is written alike"""

_Reader: Any = type("_Reader", (yaml.SafeLoader,), {})
"""PyYAML's safe reader, which also knows tuples and the arithmetic that Detectron2's own RetinaNet config has"""


def _tuple(loader: yaml.SafeLoader, node: Any) -> tuple[Any, ...]:
    return tuple(loader.construct_sequence(node, deep=True))


def _arithmetic(loader: yaml.SafeLoader, node: Any) -> Any:
    texts = loader.construct_sequence(node, deep=True)
    return evaluate_text(texts[0]) if len(texts) == 1 else _refuse(node)


def _refuse(node: Any) -> Any:
    raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag} would run code", node.start_mark)


_Reader.add_constructor("tag:yaml.org,2002:python/tuple", _tuple)
_Reader.add_constructor("tag:yaml.org,2002:python/object/apply:eval", _arithmetic)


def read_text(path: Path) -> str:
    """The text of a file, line ends as they are."""
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8")
    except NotAFile as error:
        raise InputError(f"{path} is {error.strerror}; no config is; expected a YAML file or a script") from None
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8 (byte {error.start}); expected a YAML file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check its permissions") from None


def parse(text: str, name: str) -> YamlFile:
    """Every key of a config text; ``name`` is its name in errors."""
    if len(text) > _MOST_YAML:
        raise InputError(f"{name} is larger than {_MOST_YAML >> 10} KiB: no config is; check the path")
    try:
        loader = _Reader(text)
    except yaml.reader.ReaderError as error:
        place = f"{name}:{text.count(chr(10), 0, error.position) + 1}"
        raise InputError(f"{place}: this is no YAML that Detectron2 reads: remove the control character") from None
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise InputError(f"{name} holds no config: expected keys such as MODEL: or _BASE_:")
        _refuse_too_many(root, name)
        found = _Walk(loader, name, text)
        found.places[""] = found.place(0, root, 0, False)
        found.section(root, "", False, True)
    except yaml.YAMLError as error:
        raise InputError(f"{name}{_line(error)}: this is no YAML that Detectron2 reads: {_reason(error)}") from None
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        # What PyYAML's own constructors raise: of the 99th month, of a set with a list in it.
        reason = " ".join(str(error).split())[:80]
        raise InputError(f"{name}: a value is not what its form in YAML says it is: {reason}; correct it") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{name} is nested too deeply to be a config") from None
    finally:
        loader.dispose()
    base = found.leaves.pop("_BASE_", [])
    names = (base,) if isinstance(base, str) else tuple(base) if isinstance(base, list) else None
    if names is None or not all(isinstance(each, str) for each in names):
        raise InputError(f"{name}: _BASE_ must be the path of a config, or a list of paths; got {base!r}")
    return YamlFile(text, names, found.leaves, found.places)


def _refuse_too_many(root: Any, name: str) -> None:
    """Counts what the text stands for, each node once however often it is referred to."""
    sizes: dict[int, int] = {}
    within: set[int] = set()

    def size(node: Any) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) in within:
            line = node.start_mark.line + 1
            raise InputError(f"{name}:{line}: this is no YAML that Detectron2 reads: an alias leads back to itself")
        if id(node) not in sizes:
            within.add(id(node))
            parts = node.value
            if isinstance(node, yaml.MappingNode):
                parts = [part for pair in node.value for part in pair]
            sizes[id(node)] = 1 + sum(size(part) for part in parts)
            within.discard(id(node))
        if sizes[id(node)] > _MOST_VALUES:
            raise InputError(f"{name} stands for more than {_MOST_VALUES} keys and values with aliases written out")
        return sizes[id(node)]

    size(root)


class _Walk:
    """Collects what stands under each key; a key that comes twice counts as it does in PyYAML: the last wins."""

    def __init__(self, loader: Any, name: str, text: str) -> None:
        self.loader, self.name, self.text = loader, name, text
        self.leaves: dict[str, Any] = {}
        self.places: dict[str, YamlPlace] = {}

    def section(self, node: Any, prefix: str, inside_flow: bool, here: bool) -> None:
        """``here``: the section stands where its key does, not at an anchor elsewhere."""
        inside_flow = inside_flow or bool(node.flow_style)
        own = {id(key) for key, _ in node.value}
        self.loader.flatten_mapping(node)  # what «<<» merges comes first, so that own keys win
        for key_node, value in node.value:
            key = f"{prefix}{self.loader.construct_object(key_node, deep=True)}"
            if len(self.places) > _MOST_KEYS:
                raise InputError(f"{self.name} has more than {_MOST_KEYS} keys: no config has")
            self._forget(key)
            merged = not here or id(key_node) not in own
            aliased = merged or value.start_mark.index < key_node.end_mark.index
            colon = 0 if merged else self.text.find(":", key_node.end_mark.index) + 1
            aliased = aliased or not (colon or merged)  # «{a, b}»: keys without a value to edit
            place = self.place(colon, value, key_node.start_mark.column, inside_flow)
            line = key_node.start_mark.line + 1
            self.places[key] = replace(place, line=line, form="elsewhere" if aliased else place.form)
            if isinstance(value, yaml.MappingNode) and value.tag == _SECTION:
                self.section(value, f"{key}.", inside_flow, not aliased)
            else:
                self.leaves[key] = self.loader.construct_object(value, deep=True)

    def place(self, colon: int, value: Any, column: int, inside_flow: bool) -> YamlPlace:
        return YamlPlace(0, column, colon, value.start_mark.index, self._end(value), _form(value), inside_flow)

    def _end(self, node: Any) -> int:
        """Where the last character of a value is. PyYAML ends blocks where the next token begins, comments included."""
        if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
            end = int(node.end_mark.index)
            return len(self.text[:end].rstrip()) if getattr(node, "style", None) in ("|", ">") else end
        last = node.value[-1]
        key, value = last if isinstance(node, yaml.MappingNode) else (last, last)
        aliased = value.start_mark.index < key.start_mark.index
        return len(self.text[: int(node.end_mark.index)].rstrip()) if aliased else max(self._end(key), self._end(value))

    def _forget(self, key: str) -> None:
        if key not in self.places:
            return
        for known in [name for name in self.places if name == key or name.startswith(f"{key}.")]:
            del self.places[known]
            self.leaves.pop(known, None)


def _form(node: Any) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "quoted" if node.style in ("'", '"') else "plain" if node.style is None else "block text"
    kind = "section" if isinstance(node, yaml.MappingNode) else "list"
    return f"flow {kind}" if node.flow_style else f"block {kind}"


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _reason(error: yaml.YAMLError) -> str:
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return ", ".join(part for part in parts if part) or str(error).splitlines()[0]
