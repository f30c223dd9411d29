"""Keys of a config text set to values: nothing else in the text changes, not even a blank.

>>> write_value("SOLVER:\\n  IMS_PER_BATCH: 16  # all GPUs\\n", "SOLVER.IMS_PER_BATCH", 8)
'SOLVER:\\n  IMS_PER_BATCH: 8  # all GPUs\\n'
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.yaml_file import YamlFile, YamlPlace, parse

_INDENT = 2
_ALIAS = re.compile(r"\s*\*[^\s,\]}]+")
_ANCHOR = re.compile(r"&\S+\s+")


def with_values(text: str, values: Mapping[str, Any], name: str = "the config") -> str:
    """The text with every key of ``values`` set; one that it has not yet goes to the end of its section."""
    places = parse(text, name).places
    here = [key for key in values if key in places and places[key].form != "elsewhere"]
    for key in sorted(here, key=lambda each: places[each].start, reverse=True):  # offsets before it stay right
        text = _replace_value(text, places[key], values[key])
    for key in values:
        if key not in here:
            text = _put(parse(text, name), key, values[key])
    return text


def write_value(text: str, key: str, value: Any, name: str = "the config") -> str:
    return with_values(text, {key: value}, name)


def _put(file: YamlFile, key: str, value: Any) -> str:
    """A key that is not there, or that stands for another place: an alias, or merged from an anchor."""
    place = file.places.get(key)
    if place is None or place.colon == 0:  # merged: an own key wins
        return _add_key(file, key, value)
    found = _ALIAS.match(file.text, place.colon)
    end = found.end() if found else place.colon
    return f"{file.text[: place.colon]} {format_value(value, place.inside_flow)}{file.text[end:]}"


def _replace_value(text: str, place: YamlPlace, value: Any) -> str:
    new = format_value(value, place.inside_flow)
    if place.form == "block list":
        return _instead_of_block(text, place, new)
    anchor = _ANCHOR.match(text, place.start, place.end)
    if anchor:  # stays: others may point to it
        new = f"{anchor.group()}{new}"
    elif place.form == "quoted" and not isinstance(value, str):
        quote = text[place.end - 1]
        new = f"{quote}{value!r}{quote}"
    blank = " " if place.start == place.end else ""  # there was no value
    return f"{text[: place.start]}{blank}{new}{text[place.end :]}"


def format_value(value: Any, inside_flow: bool = False) -> str:
    """A value as people write it in Detectron2's configs: tuples as in Python, unless a comma would end them."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "null"
    if isinstance(value, tuple) and not inside_flow:
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(format_value(each, True) for each in value)}]"
    return repr(value)


def _instead_of_block(text: str, place: YamlPlace, new: str) -> str:
    """A list of lines with dashes becomes one value behind the colon; a comment that stands there stays."""
    line = text.rfind("\n", 0, place.start) + 1
    head = text[: place.colon], text[place.colon : line].rstrip("\r\n")
    ends = text[line - 2 : line] if text[line - 2 : line] == "\r\n" else "\n"
    rest = text[place.end :]
    tail = rest if rest.startswith(("\r", "\n")) or not rest else ends + rest.lstrip(" ")
    return f"{head[0]} {new}{head[1]}{tail}"


def _add_key(file: YamlFile, key: str, value: Any) -> str:
    parts = key.split(".")
    depth = next(d for d in range(len(parts) - 1, -1, -1) if ".".join(parts[:d]) in file.places)
    section, missing = ".".join(parts[:depth]), parts[depth:]
    place = file.places[section]
    if place.form not in ("block section", "flow section"):
        raise InputError(
            f"{key} cannot be written: {section} is an alias of another section; write its keys out, or name another "
            "file with --write FILE"
        )
    if place.form == "flow section":
        return _add_to_flow(file.text, place, missing, value)
    columns = [file.places[each].column for each in file.places if _is_child(each, section)]
    column = columns[0] if columns else place.column + _INDENT
    step = _step(file)
    ends = "\r\n" if "\r\n" in file.text else "\n"
    lines = [f"{' ' * (column + step * level)}{part}:" for level, part in enumerate(missing)]
    new = ends.join(lines) + f" {format_value(value)}"
    at = file.text.find("\n", place.end)
    if at < 0:
        return f"{file.text}{ends}{new}{ends}"
    return f"{file.text[: at + 1]}{new}{ends}{file.text[at + 1 :]}"


def _add_to_flow(text: str, place: YamlPlace, missing: list[str], value: Any) -> str:
    inner = format_value(value, True)
    for part in reversed(missing[1:]):
        inner = f"{{{part}: {inner}}}"
    close = place.end - 1
    before = text[:close].rstrip()
    comma = "" if before.endswith(("{", ",")) else ","
    blank = "" if before.endswith("{") else " "
    return f"{before}{comma}{blank}{missing[0]}: {inner}{text[len(before) :]}"


def _is_child(key: str, section: str) -> bool:
    above, _, last = key.rpartition(".")
    return bool(last) and above == section and key != section


def _step(file: YamlFile) -> int:
    """How far the file indents: as its first section that has keys does."""
    for key, place in file.places.items():
        above, _, _ = key.rpartition(".")
        if above and not place.inside_flow and place.form != "elsewhere" and place.column > file.places[above].column:
            return place.column - file.places[above].column
    return _INDENT
