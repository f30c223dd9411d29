"""A file gets new content as a whole or not at all, and stays the file it was: its owner, its mode, the links to it.

What the user had is kept beside it as ``.orig``, whole as well and never more readable. The times of both tell whether
the user has changed the file since: ``.orig`` is given the time of the file that was written over what it keeps.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from oomproof.files.regular import refuse_others

KEPT = ".orig"
_PATIENCE = 2.0
"""seconds to wait for another process that writes in the same folder; then the file is written all the same"""


class CannotReplace(OSError):
    """Says in ``strerror`` why a file is better left alone."""


def replace_file(target: Path, content: bytes, *, expected: bytes | None = None) -> bool:
    """Whether anything had to be written. Where ``expected`` is given, the file must still hold that."""
    place = find_place(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(place.parent):
        there = place.read_bytes() if place.exists() else None
        if expected is not None and there != expected:
            raise CannotReplace(None, "the file has changed since it was read", str(target))
        if there == content:
            return False
        with _put_in_place(place) as file:
            file.write(content)
            file.flush()
            if there is not None:
                _keep(place, there, os.fstat(file.fileno()).st_mtime_ns)
    return True


@contextmanager
def new_content(target: Path) -> Iterator[BinaryIO]:
    """A file to write to, which becomes ``target`` at the end, if all goes well. Nothing is kept of what was there."""
    with _put_in_place(find_place(target)) as file:
        yield file


def find_place(target: Path) -> Path:
    """Where the bytes of ``target`` are, behind all symbolic links; CannotReplace or NotAFile where a file of its own
    cannot be put there without harm."""
    try:
        place = target.resolve()
    except FileNotFoundError:  # of a relative path
        raise CannotReplace(None, "the folder that you are in has been removed", str(target)) from None
    except RuntimeError:  # Python 3.12 and before, of links that lead in a circle
        raise CannotReplace(None, "its links lead in a circle", str(target)) from None
    except ValueError:
        raise CannotReplace(None, "not a name that a file can have", str(target)) from None
    try:
        status = place.stat()
    except FileNotFoundError:
        return place
    refuse_others(status.st_mode, target)
    if status.st_nlink > 1:
        raise CannotReplace(
            None, f"it has {status.st_nlink} names (hard links), of which one alone would be written", str(target)
        )
    if hasattr(os, "geteuid") and os.geteuid() not in (0, status.st_uid):
        raise CannotReplace(None, "it belongs to another user, whose it would no longer be", str(target))
    return place


@contextmanager
def _put_in_place(place: Path, like: Path | None = None) -> Iterator[BinaryIO]:
    """``like``: whose owner and mode the file gets, its predecessor's if not said."""
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _take_over(unfinished, like or place)
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(place)
    except BaseException:  # Ctrl-C too must leave nothing behind
        with suppress(OSError):
            unfinished.unlink()
        raise
    _sync_folder(place.parent)


def _keep(place: Path, content: bytes, written: int) -> None:
    """What the user had becomes ``.orig``, unless ``place`` is as oomproof itself left it: then ``.orig`` has it."""
    kept = place.with_name(place.name + KEPT)
    is_ours = kept.is_file() and not kept.is_symlink() and kept.stat().st_mtime_ns == place.stat().st_mtime_ns
    if not is_ours:
        with _put_in_place(kept, like=place) as file:
            file.write(content)
    else:  # the file may have been made private meanwhile
        _take_over(kept, place)
    os.utime(kept, ns=(written, written))


def _take_over(unfinished: Path, place: Path) -> None:
    """Owner, mode and access lists of the file that is replaced; a new file is an ordinary one."""
    try:
        old = place.stat()
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        unfinished.chmod(0o666 & ~umask)
        return
    if hasattr(os, "chown"):
        _keep_owner(unfinished, old, place)
    for name in _list_attributes(place):
        with suppress(OSError):  # some only root may set; the others are kept all the same
            os.setxattr(unfinished, name, os.getxattr(place, name))
    unfinished.chmod(stat.S_IMODE(old.st_mode))


def _list_attributes(place: Path) -> list[str]:
    """Access lists are among them."""
    try:
        return os.listxattr(place)
    except (AttributeError, OSError):  # not on every system, nor on every file system
        return []


def _keep_owner(unfinished: Path, old: os.stat_result, place: Path) -> None:
    new = unfinished.stat()
    if (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid):
        return
    try:
        os.chown(unfinished, old.st_uid, old.st_gid)
    except PermissionError:
        raise CannotReplace(None, "its owner and group cannot be kept", str(place)) from None


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other oomproof writes in the folder meanwhile. The lock is on the folder itself, so that no file stays."""
    try:
        import fcntl
    except ImportError:  # Windows: each write is whole all the same
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """So that the new name outlives a power cut too, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
