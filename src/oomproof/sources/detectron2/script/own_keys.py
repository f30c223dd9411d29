"""Keys that Detectron2 does not have: a script's own, those of a project, and mistakes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from oomproof.sources.detectron2.config.config import Origin
from oomproof.sources.detectron2.config.inventions import advice
from oomproof.sources.detectron2.config.schema import SECTIONS
from oomproof.sources.detectron2.config.values import nearest
from oomproof.sources.detectron2.script.contents import Made, Section
from oomproof.sources.detectron2.script.knowing import shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader


def find_project(reader: Reader, section: Section) -> str:
    """What to say where a project adds keys for code of its own, as Detectron2's own projects do; empty elsewhere."""
    function = next((each for each in reversed(reader.calls) if isinstance(each, ast.FunctionDef)), None)
    if function is not None and function.name.startswith("add_") and function.name.endswith("_config"):
        where, who = Origin(reader.file, function.lineno), function.name
    elif section.of == reader.defaults:
        where, who = Origin(reader.file), "the project"
    else:
        return ""
    return f"{where}: {who} adds keys for code that Detectron2 does not have, which is not forecast"


def find_own_keys(content: Made) -> Callable[[str], bool]:
    """Whether a key that Detectron2 does not have may be one that the script or its project has added."""

    def is_own(key: str) -> bool:
        return content.takes_new_keys or any(key == each or key.startswith(f"{each}.") for each in content.own)

    return is_own


def note_unknown_key(reader: Reader, made: Made, key: str, value: ast.AST, where: Origin) -> list[str]:
    if key in SECTIONS:
        return [f"{where}: {key} is a section; with {shorten_code(value)} in its place Detectron2 fails later"]
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("CN", "CfgNode"):
        return []  # a section of one's own, for code of one's own
    if any(read.endswith(f".{key}") for read in reader.read_keys):
        return [f"{where}: {key} is not a key of Detectron2; the script reads it itself, which is not forecast"]
    if made.takes_new_keys:
        return [f"{where}: {key} is not a key of Detectron2, but perhaps one of the project's; it is not forecast"]
    meant = nearest(key)
    instead = advice(key) or (f"Did you mean {' or '.join(meant)}?" if meant else "")
    said = f"{where}: {key} does nothing: Detectron2 has no such key and takes it in silence. {instead}"
    return [said.strip()]
