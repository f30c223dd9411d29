"""Keeps what a script writes away from the user's files: it goes to a folder that is thrown away, and the script finds
it there again.

Two layers. Python's own functions for files are led to a copy of the tree that holds only what was written (``Kept``).
What goes around them, libraries in C and programs that the script starts, is refused by the kernel where it knows how
(landlock.py).
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from oomproof.sources.script.child.landlock import allow_writes_only_in

_NEVER = ("/dev", "/proc", "/sys")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Kept:
    """Where things are: as the script names them, and as they really are."""

    def __init__(self, folder: Path, allowed: tuple[Path, ...]) -> None:
        self._folder = str(folder)
        self._allowed = (*_NEVER, *(str(each.resolve()) for each in allowed))
        self.written: set[str] = set()
        """what the script wrote, by its own names"""
        self._gone: set[str] = set()

    def note(self) -> list[str]:
        return sorted(self.written)

    def is_free(self, path: str) -> bool:
        return any(path == each or path.startswith(each + os.sep) for each in self._allowed)

    def for_reading(self, given: Any) -> Any:
        """The file as it is now: the script's version, or the real one."""
        path = _absolute(given)
        if path is None or self.is_free(path):
            return given
        if path in self._gone:
            return self._folder + "/gone"
        kept = self._folder + path
        return kept if os.path.lexists(kept) and not _real_folder(path) else given

    def for_writing(self, given: Any, *, content: bool = False) -> Any:
        """A place for the script's version, with the real ``content`` in it if some of that stays."""
        path = _absolute(given)
        if path is None or self.is_free(path):
            return given
        kept = self._folder + path
        folder = os.path.dirname(path)
        if not self.exists(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        _MAKEDIRS(os.path.dirname(kept), exist_ok=True)
        if content and path not in self._gone and not os.path.lexists(kept) and os.path.isfile(path):
            shutil.copyfile(path, kept)
        self._gone.discard(path)
        self.written.add(path)
        return kept

    def exists(self, path: str) -> bool:
        return path not in self._gone and (os.path.lexists(self._folder + path) or os.path.lexists(path))

    def make_folder(self, given: Any, mode: int = 0o777) -> None:
        path = _absolute(given)
        if path is None or self.is_free(path):
            return _MKDIR(given, mode)
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        kept = self.for_writing(path)
        return None if os.path.isdir(kept) else _MKDIR(kept)

    def remove(self, given: Any, take: Callable[..., None]) -> None:
        path = _absolute(given)
        if path is None or self.is_free(path):
            return take(given)
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if os.path.lexists(self._folder + path):
            take(self._folder + path)
        self._gone.add(path)
        return None

    def move(self, source: Any, target: Any) -> None:
        old, new = _absolute(source), _absolute(target)
        if old is None or new is None or (self.is_free(old) and self.is_free(new)):
            return _REPLACE(source, target)
        now = self.for_reading(source)
        place = self.for_writing(target)
        if os.path.isdir(now):
            shutil.copytree(now, place, dirs_exist_ok=True)
        else:
            shutil.copyfile(now, place)
        self.remove(source, lambda path: shutil.rmtree(path) if os.path.isdir(path) else _UNLINK(path))
        return None


_MKDIR, _MAKEDIRS, _UNLINK, _REPLACE = os.mkdir, os.makedirs, os.unlink, os.replace


def _absolute(given: Any) -> str | None:
    """None for what is not a path: a descriptor."""
    if isinstance(given, int):
        return None
    try:
        return os.path.abspath(os.fsdecode(given))
    except TypeError:
        return None


def _real_folder(path: str) -> bool:
    return os.path.isdir(path)


def keep_writes(folder: Path, allowed: tuple[Path, ...]) -> Kept:
    """For the rest of the process."""
    folder.mkdir()
    kept = Kept(folder, allowed)
    for place, name, function in _replacements(kept):
        patch.object(place, name, function).start()
    allow_writes_only_in([*map(str, allowed), "/dev"])
    return kept


def _replacements(kept: Kept) -> Iterator[tuple[Any, str, Any]]:
    real_open, real_os_open = io.open, os.open

    def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(mode, str) and set(mode) & set("wax+"):
            if "x" in mode and (path := _absolute(file)) is not None and kept.exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            return real_open(kept.for_writing(file, content="w" not in mode), mode, *args, **kwargs)
        return real_open(kept.for_reading(file), mode, *args, **kwargs)

    def open_descriptor(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is None and flags & _WRITES and not flags & getattr(os, "O_DIRECTORY", 0):
            return real_os_open(kept.for_writing(path, content=not flags & os.O_TRUNC), flags, mode)
        return real_os_open(path if dir_fd is not None else kept.for_reading(path), flags, mode, dir_fd=dir_fd)

    def removing(take: Callable[..., None]) -> Callable[..., None]:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            if dir_fd is None:
                kept.remove(path, take)

        return remove

    def rmtree(path: Any, ignore_errors: bool = False, *args: Any, **kwargs: Any) -> None:
        try:
            kept.remove(path, lambda each: real_rmtree(each, ignore_errors))
        except OSError:
            if not ignore_errors:
                raise

    real_rmtree = shutil.rmtree

    def reading(function: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            return function(kept.for_reading(path) if kwargs.get("dir_fd") is None else path, *args, **kwargs)

        return read

    def nothing(path: Any, *args: Any, **kwargs: Any) -> None:
        """Times, owners and rights of the user's files stay as they are."""

    yield builtins, "open", open_file
    yield io, "open", open_file
    yield os, "open", open_descriptor
    yield os, "mkdir", lambda path, mode=0o777, *, dir_fd=None: kept.make_folder(path, mode)
    for name in ("unlink", "remove", "rmdir"):
        yield os, name, removing(getattr(os, name))
    yield shutil, "rmtree", rmtree
    for name in ("rename", "replace"):
        yield os, name, lambda source, target, **_: kept.move(source, target)
    for name in ("stat", "lstat", "listdir", "scandir", "access", "readlink"):
        yield os, name, reading(getattr(os, name))
    for name in ("chmod", "chown", "utime", "truncate", "symlink", "link", "mkfifo"):
        if hasattr(os, name):
            yield os, name, nothing
