"""Files and folders of a dataset: those that are there, in order, each folder once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from oomproof.errors import InputError
from oomproof.files.regular import NotAFile, open_regular, read_regular

__all__ = [
    "NotAFile",
    "has_file",
    "is_folder",
    "is_regular",
    "list_files",
    "list_folders",
    "open_regular",
    "read_regular",
    "reason",
]

DEEPEST = 32
MOST_ENTRIES = 20_000_000


def is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def list_files(folder: Path, endings: tuple[str, ...], deep: bool = True) -> list[Path]:
    """Files of a folder whose names end so (in lower case), sorted; in folders below it too if ``deep``.

    Links to folders are followed, each folder once. What is neither file nor folder is passed by.
    """
    found: list[str] = []
    for entry in _walk(folder, deep):
        if entry.name.lower().endswith(endings) and not entry.name.startswith("."):
            found.append(entry.path)
    return [Path(path) for path in sorted(found)]


def list_folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except OSError:
        return []


def has_file(folder: Path, endings: tuple[str, ...], deep: bool = False) -> bool:
    return any(entry.name.lower().endswith(endings) for entry in _walk(folder, deep))


def _walk(folder: Path, deep: bool) -> Iterator[os.DirEntry[str]]:
    seen = {_identity(folder)}
    waiting, entries = [(str(folder), 0)], 0
    while waiting:
        path, depth = waiting.pop()
        for entry in _scan(path, required=depth == 0):
            entries += 1
            if entries > MOST_ENTRIES:
                raise InputError(f"{folder} holds more than {MOST_ENTRIES:,} files; name a folder of it")
            try:
                if entry.is_dir():
                    here = _identity(Path(entry.path))
                    if deep and depth < DEEPEST and here not in seen and not entry.name.startswith("."):
                        seen.add(here)
                        waiting.append((entry.path, depth + 1))
                elif entry.is_file():
                    yield entry
            except OSError:  # a link that leads nowhere, or round in a circle
                continue


def _identity(folder: Path) -> tuple[int, int]:
    """The same for every way that leads to the folder; two zeros where none does."""
    try:
        status = folder.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _scan(path: str, required: bool) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            yield from entries
    except OSError as error:
        if required:
            raise InputError(f"cannot read the folder {path}: {reason(error)}; check its permissions") from None
