"""Files that are files: a pipe would wait for ever, a device has no end, and a link may lead to either."""

from __future__ import annotations

import os
import select
import stat
from pathlib import Path
from typing import BinaryIO


class NotAFile(OSError):
    """Says in ``strerror`` what it is instead."""


def open_regular(path: str | os.PathLike[str], buffering: int = -1) -> BinaryIO:
    """Opens a file to read its bytes; OSError where it is none, at once."""
    try:
        refuse_others(Path(path).stat().st_mode, path)  # first: to open a device may already do something
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:  # a NUL in the name
        raise NotAFile(None, "not a name that a file can have", str(path)) from None
    try:
        status = os.fstat(descriptor)
        refuse_others(status.st_mode, path)
        if status.st_size == 0 and not _has_content(descriptor):
            raise NotAFile(None, "a file of the system, with nothing to read now", str(path))
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


def _has_content(descriptor: int) -> bool:
    """Or an end: some of the system's files (/proc/kmsg) are regular ones of no bytes, and wait for content as pipes
    do."""
    if not hasattr(select, "poll"):
        return True
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    return bool(ready.poll(0))


def refuse_others(mode: int, path: str | os.PathLike[str]) -> None:
    """NotAFile for what is neither; ``mode`` is that of its status."""
    if stat.S_ISDIR(mode):
        raise NotAFile(None, "a folder, not a file", str(path))
    if not stat.S_ISREG(mode):
        raise NotAFile(None, "a pipe, socket or device, not a file", str(path))
