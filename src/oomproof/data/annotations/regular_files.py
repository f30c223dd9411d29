"""Files that are files: a pipe would wait for ever, a device has no end, and a link may lead to either."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from oomproof.errors import InputError

DEEPEST = 32
MOST_ENTRIES = 20_000_000


class NotAFile(OSError):
    """Says in ``strerror`` what it is instead."""


def open_regular(path: str | os.PathLike[str], buffering: int = -1) -> BinaryIO:
    """Opens a file to read its bytes; OSError where it is none, at once."""
    try:
        _refuse_others(Path(path).stat().st_mode, path)  # first: to open a device may already do something
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:  # a NUL in the name
        raise NotAFile(None, "not a name that a file can have", str(path)) from None
    try:
        _refuse_others(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """All bytes of a file that has no more than ``most``."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise NotAFile(None, f"larger than {most >> 20} MiB", str(path))
    return content


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


def _refuse_others(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise NotAFile(None, "a folder, not a file", str(path))
    if not stat.S_ISREG(mode):
        raise NotAFile(None, "a pipe, socket or device, not a file", str(path))
