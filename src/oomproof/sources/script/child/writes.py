"""Keeps what a script writes away from the user's files: it goes to a folder that is thrown away, and the script finds
it there again.

Two layers. Python's own functions for files are led to a tree that holds only what was written (``KeptFiles``). What
goes around them, libraries in C and programs that the script starts, is refused by the kernel where it knows how
(landlock.py).
"""
# ruff: noqa: PTH100, PTH118, PTH120
# (These are the functions that pathlib calls.)

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from oomproof.sources.script.child.landlock import allow_writes_only_in

_NEVER = ("/dev", "/proc", "/sys")
_SETTINGS, _MOST_SETTINGS = (".yaml", ".yml", ".json"), 20
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MKDIR, _REPLACE, _STAT, _LSTAT, _LISTDIR, _SCANDIR = os.mkdir, os.replace, os.stat, os.lstat, os.listdir, os.scandir
_OPEN, _OPEN_DESCRIPTOR, _RMTREE, _UNLINK = io.open, os.open, shutil.rmtree, os.unlink
"""the real ones"""
_OWN = sys.modules[__name__]


class KeptFiles:
    """Where things are: as the script names them, and as they really are."""

    def __init__(self, folder: Path, allowed: tuple[Path, ...]) -> None:
        self._folder = str(folder)
        self._allowed = (*_NEVER, *(str(each.resolve()) for each in allowed), *map(str, allowed))
        self._gone: set[str] = set()
        """what the script has removed"""
        self._settings: list[str] = []
        self._tell: Callable[[list[str]], None] | None = None

    def watch_settings(self, tell: Callable[[list[str]], None]) -> None:
        """From now on, tells which YAML and JSON files the script reads, all of them each time."""
        self._tell = tell

    def _note_settings(self, given: Any) -> None:
        path = _absolute(given)
        if self._tell is None or path is None or not path.endswith(_SETTINGS) or len(self._settings) >= _MOST_SETTINGS:
            return
        if path not in self._settings and not self.is_free(path) and "site-packages" not in path:
            self._settings.append(path)
            self._tell(self._settings)

    def is_free(self, path: str) -> bool:
        """Whether the script may write there for real."""
        return any(path == each or path.startswith(each + os.sep) for each in self._allowed)

    def for_reading(self, given: Any) -> Any:
        """The file as it is now: the script's version, or the real one."""
        path = _absolute(given)
        if path is None or self.is_free(path):
            return given
        if any(path == each or path.startswith(each + os.sep) for each in self._gone) and not _is_there(self.of(path)):
            return self.of("/gone/by/now")
        return self.of(path) if _is_there(self.of(path)) and not _is_folder(path) else given

    def for_writing(self, given: Any, *, content: bool = False) -> Any:
        """A place for the script's version, with the real ``content`` in it if some of that stays."""
        path = _absolute(given)
        if path is None or self.is_free(path):
            return given
        folder, kept = os.path.dirname(path), self.of(path)
        if not self.is_there(folder):
            raise _make_os_error(errno.ENOENT, path)
        _make_folders(os.path.dirname(kept))
        if content and path not in self._gone and not _is_there(kept) and _is_there(path):
            _copy(path, kept)
        self._gone.discard(path)
        return kept

    def of(self, path: str) -> str:
        return self._folder + path

    def is_there(self, path: str) -> bool:
        return _is_there(self.of(path)) or (path not in self._gone and _is_there(path))

    def make_folder(self, given: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        path = _absolute(given)
        if path is None or self.is_free(path):
            return _MKDIR(given, mode)
        if self.is_there(path):
            raise _make_os_error(errno.EEXIST, path)
        return _MKDIR(self.for_writing(path))

    def remove(self, given: Any, take: Callable[..., None]) -> None:
        path = _absolute(given)
        if path is None or self.is_free(path):
            return take(given)
        if not self.is_there(path):
            raise _make_os_error(errno.ENOENT, path)
        if _is_there(self.of(path)):
            take(self.of(path))
        self._gone.add(path)
        return None

    def move(self, source: Any, target: Any, **_: Any) -> None:
        old, new = _absolute(source), _absolute(target)
        if old is None or new is None or (self.is_free(old) and self.is_free(new)):
            return _REPLACE(source, target)
        now, place = self.for_reading(source), self.for_writing(target)
        if _is_folder(now):
            shutil.copytree(now, place, dirs_exist_ok=True)
        else:
            _copy(now, place)
        return self.remove(source, lambda path: _RMTREE(path) if _is_folder(path) else _UNLINK(path))

    def names_in(self, given: Any = ".") -> list[Any]:
        path = _absolute(given)
        if path is None or self.is_free(path) or not _is_folder(self.of(path)):
            return _LISTDIR(self.for_reading(given))
        names = (
            {name for name in _LISTDIR(path) if os.path.join(path, name) not in self._gone}
            if _is_there(path)
            else set()
        )
        return sorted(names | set(_LISTDIR(self.of(path))))

    def entries_in(self, given: Any = ".") -> Any:
        path = _absolute(given)
        if path is None or self.is_free(path) or not (_is_folder(self.of(path)) and _is_folder(path)):
            return _SCANDIR(self.for_reading(given))
        return _Entries([*_SCANDIR(given), *_SCANDIR(self.of(path))])

    def open_file(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(mode, str) and set(mode) & set("wax+"):
            path = _absolute(file)
            if "x" in mode and path is not None and self.is_there(path):
                raise _make_os_error(errno.EEXIST, path)
            return _OPEN(self.for_writing(file, content="w" not in mode), mode, *args, **kwargs)
        self._note_settings(file)
        return _OPEN(self.for_reading(file), mode, *args, **kwargs)

    def open_descriptor(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            return _OPEN_DESCRIPTOR(path, flags, mode, dir_fd=dir_fd)
        if flags & _WRITES and not flags & getattr(os, "O_DIRECTORY", 0):
            return _OPEN_DESCRIPTOR(self.for_writing(path, content=not flags & os.O_TRUNC), flags, mode)
        return _OPEN_DESCRIPTOR(self.for_reading(path), flags, mode)

    def remove_tree(self, path: Any, ignore_errors: bool = False, *args: Any, **kwargs: Any) -> None:
        try:
            self.remove(path, lambda each: _RMTREE(each, ignore_errors))
        except OSError:
            if not ignore_errors:
                raise


class _Entries:
    """What os.scandir gives: entries, and an end."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = iter({entry.name: entry for entry in entries}.values())

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


def keep_writes(folder: Path, allowed: tuple[Path, ...]) -> KeptFiles:
    """For the rest of the process."""
    folder.mkdir()
    kept = KeptFiles(folder, allowed)
    for place, name, function in _replacements(kept):
        patch.object(place, name, function).start()
    allow_writes_only_in([*map(str, allowed), "/dev"])
    return kept


def _replacements(kept: KeptFiles) -> Iterator[tuple[Any, str, Any]]:
    def replace_remove(take: Callable[..., None]) -> Callable[..., None]:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            if dir_fd is None:
                kept.remove(path, take)
            elif kept.is_free(os.path.realpath(f"/proc/self/fd/{dir_fd}")):  # rmtree goes by descriptors
                take(path, dir_fd=dir_fd)

        return remove

    def replace_read(function: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            return function(kept.for_reading(path) if kwargs.get("dir_fd") is None else path, *args, **kwargs)

        return read

    def leave_alone(path: Any, *args: Any, **kwargs: Any) -> None:
        """Times, owners and rights of the user's files stay as they are."""

    for module in [*sys.modules.values()]:  # bz2, tarfile and others have names of their own for it
        for name in [name for name, value in vars(module).items() if value is _OPEN and module is not _OWN]:
            yield module, name, kept.open_file
    yield os, "open", kept.open_descriptor
    yield os, "mkdir", kept.make_folder
    yield shutil, "rmtree", kept.remove_tree
    yield os, "listdir", kept.names_in
    yield os, "scandir", kept.entries_in
    for name in ("unlink", "remove", "rmdir"):
        yield os, name, replace_remove(getattr(os, name))
    for name in ("rename", "replace"):
        yield os, name, kept.move
    for name in ("stat", "lstat", "access", "readlink"):
        yield os, name, replace_read(getattr(os, name))
    for name in ("chmod", "chown", "utime", "truncate", "symlink", "link", "mkfifo"):
        if hasattr(os, name):
            yield os, name, leave_alone


def _absolute(given: Any) -> str | None:
    """None for what is not a path: a descriptor."""
    if isinstance(given, int):
        return None
    try:
        return os.path.abspath(os.fsdecode(given))
    except TypeError:
        return None


def _is_there(path: str) -> bool:
    try:
        _LSTAT(path)
    except OSError:
        return False
    return True


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(_STAT(path).st_mode)
    except OSError:
        return False


def _make_folders(path: str) -> None:
    missing = []
    while not _is_there(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        _MKDIR(each)


def _copy(source: str, target: str) -> None:
    with _OPEN(source, "rb") as old, _OPEN(target, "wb") as new:
        shutil.copyfileobj(old, new)


def _make_os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
