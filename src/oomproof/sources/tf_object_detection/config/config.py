"""A pipeline.config as everything else uses it: values by path, and the same file with other values.

>>> config = read_config(Path("pipeline.config"))
>>> config.value("train_config.batch_size"), config.which("model")
(24, 'ssd')
>>> config.with_value("train_config.batch_size", 8).text  # nothing else in it has changed
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.edit import apply_changes, editor_of, remove_path, set_path
from oomproof.sources.tf_object_detection.config.paths import parse_path, walk
from oomproof.sources.tf_object_detection.config.reading import (
    ConfigReading,
    Entry,
    Leaf,
    MessageSection,
    plain_entry,
    read_tree,
)
from oomproof.sources.tf_object_detection.config.schema import ROOT
from oomproof.sources.tf_object_detection.config.text_file import parse, read_text
from oomproof.sources.tf_object_detection.config.tokens import find_place

if TYPE_CHECKING:
    from oomproof.sources.tf_object_detection.config.dead_fields import DeadField

_SECTION_LINE = re.compile(rf"^[ \t]*({'|'.join(ROOT.fields)})\s*:?\s*[{{<]", re.MULTILINE)
_MODEL_INSIDE = re.compile(r"\b(ssd|faster_rcnn|center_net|experimental_model)\s*:?\s*[{<]")
_MOST_LOOKED_AT = 64 << 10


@dataclass(frozen=True, eq=False)
class Config:
    """A pipeline.config without a mistake in it. Values are plain: numbers, texts, tuples, dictionaries."""

    name: str
    text: str
    reading: ConfigReading
    path: Path | None = None

    def value(self, path: str) -> Any:
        """What a field is, set or by default: a tuple if it is repeated, a dictionary or None if it is a message."""
        steps = parse_path(path)
        last = steps[-1]
        _, entry = walk(self.reading.root, steps)
        if entry is not None:
            return plain_entry(entry)
        if last.index is not None:
            raise InputError(f"{self.name}: {path} is not there; {last.field.name} has fewer items")
        if last.field.is_repeated:
            return ()
        return last.field.default

    def is_set(self, path: str) -> bool:
        """Whether the file says it, rather than a default."""
        return walk(self.reading.root, parse_path(path))[1] is not None

    def which(self, path: str) -> str:
        """The chosen member of a message's oneof: ``which("model")`` is ssd; empty where none is chosen."""
        _, entry = walk(self.reading.root, parse_path(path))
        if not isinstance(entry, MessageSection):
            return ""
        return next((name for name in entry.entries if entry.type.fields[name].oneof), "")

    def where(self, path: str) -> str:
        """The place of a field that is set, as FILE:LINE:COLUMN; the file's name where it is not."""
        _, entry = walk(self.reading.root, parse_path(path))
        return self.name if entry is None else self.at(start_of(entry))

    def at(self, offset: int) -> str:
        line, column = find_place(self.text, offset)
        return f"{self.name}:{line}:{column}"

    def leaves(self) -> dict[str, Any]:
        """Every value that the file sets, by its path, in the order of the file."""
        return dict(_leaves(self.reading.root, ""))

    def with_value(self, path: str, value: Any) -> Config:
        """The file with a field set; a member of a oneof takes the place of the one there."""
        changes = set_path(editor_of(self.text, self.reading), parse_path(path), value, path)
        return config_of_text(apply_changes(self.text, changes), self.name, self.path)

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """The file with several fields set, one after the other."""
        config = self
        for path, value in values.items():
            config = config.with_value(path, value)
        return config

    def without(self, path: str) -> Config:
        """The file without a field, or without one item of a repeated field."""
        changes = remove_path(editor_of(self.text, self.reading), parse_path(path))
        return config_of_text(apply_changes(self.text, changes), self.name, self.path)

    def dead_fields(self, tensorflow: int | None = None) -> tuple[DeadField, ...]:
        """Fields that do nothing, each with the reason; under TensorFlow 1 or 2, by default the one it is made for."""
        from oomproof.sources.tf_object_detection.config.dead_fields import find_dead_fields

        return find_dead_fields(self, tensorflow)


def read_config(path: Path) -> Config:
    """The config in a file; everything that is wrong with it comes in one error."""
    return config_of_text(read_text(path), str(path), path)


def config_of_text(text: str, name: str, path: Path | None = None) -> Config:
    reading = read_tree(parse(text, name))
    if reading.problems:
        raise InputError(_describe_problems(reading, text, name))
    return Config(name, text, reading, path)


def recognise(text: str) -> bool:
    """Whether a text looks like a pipeline.config, mistakes in it or not."""
    start = text[:_MOST_LOOKED_AT]
    found = set(_SECTION_LINE.findall(start))
    if found == {"model"}:  # other formats have models too
        return _MODEL_INSIDE.search(start) is not None
    return bool(found)


def start_of(entry: Entry) -> int:
    """Where the field of an entry begins."""
    if isinstance(entry, list):
        return start_of(entry[0])
    return entry.origin.field.start if isinstance(entry, Leaf) else entry.origins[0].field.start


def _describe_problems(reading: ConfigReading, text: str, name: str) -> str:
    places = [find_place(text, each.offset) for each in reading.problems]
    if len(places) == 1:
        return f"{name}:{places[0][0]}:{places[0][1]}: {reading.problems[0].text}"
    told = [f"{at[0]}:{at[1]}: {each.text}" for at, each in zip(places, reading.problems, strict=True)]
    more = f" | and {reading.more_problems} more" if reading.more_problems else ""
    return f"{name} has {len(told) + reading.more_problems} mistakes: {' | '.join(told)}{more}"


def _leaves(entry: Entry, path: str) -> list[tuple[str, Any]]:
    if isinstance(entry, Leaf):
        return [(path, entry.value)]
    if isinstance(entry, list):
        return [pair for number, each in enumerate(entry) for pair in _leaves(each, f"{path}[{number}]")]
    dot = "." if path else ""
    return [pair for name, each in entry.entries.items() for pair in _leaves(each, f"{path}{dot}{name}")]
