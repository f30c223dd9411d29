"""Names of fields such as ``train_input_reader.tf_record_input_reader.input_path[0]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.reading import Entry, Leaf, MessageSection, describe_unknown_field
from oomproof.sources.tf_object_detection.config.schema import ROOT, FieldType

_PART = re.compile(r"(?P<name>\w+)(?:\[(?P<index>\d{1,6})\])?")


@dataclass(frozen=True)
class PathPart:
    """One part of a path. ``index`` is None for a field that is not repeated, or for all of its values."""

    field: FieldType
    index: int | None = None


def parse_path(path: str) -> tuple[PathPart, ...]:
    """The parts of a path; names that do not exist are refused with the nearest that does."""
    kind, prefix = ROOT, ""
    steps: list[PathPart] = []
    parts = path.split(".")
    for number, part in enumerate(parts):
        found = _PART.fullmatch(part)
        if found is None:
            raise InputError(f"'{path}' is not the path of a field; expected one such as train_config.batch_size")
        field = kind.fields.get(found["name"])
        if field is None:
            raise InputError(describe_unknown_field(found["name"], kind, prefix))
        index = int(found["index"]) if found["index"] else None
        if index is not None and not field.is_repeated:
            raise InputError(f"{prefix}{part}: {found['name']} has one value; write it without an index")
        last = number == len(parts) - 1
        if not last and field.message is None:
            raise InputError(f"{prefix}{found['name']} is a single value ({field.type}); it has no field {parts[-1]}")
        if not last and field.is_repeated and index is None:
            raise InputError(f"{prefix}{found['name']} is repeated; write which one, such as {prefix}{part}[0]")
        steps.append(PathPart(field, index))
        prefix += f"{part}."
        kind = field.message or kind
    return tuple(steps)


def find_entry(section: MessageSection, step: PathPart) -> Entry | None:
    """What a section has at a step; None where it is not set, or has fewer items."""
    entry = section.entries.get(step.field.name)
    if step.index is None or entry is None:
        return entry
    assert isinstance(entry, list)
    return entry[step.index] if step.index < len(entry) else None


def walk(root: MessageSection, steps: tuple[PathPart, ...]) -> tuple[MessageSection | None, Entry | None]:
    """The section that the last step is in, and what is there; None for what is not set."""
    section: MessageSection | None = root
    for step in steps[:-1]:
        found = None if section is None else find_entry(section, step)
        assert not isinstance(found, (Leaf, list))
        section = found
    return section, None if section is None else find_entry(section, steps[-1])
