"""Logs that come through a named pipe, as in ``oomproof explain <(python train.py 2>&1)``."""

from __future__ import annotations

import io
import os
import select
import stat
import time
from pathlib import Path
from typing import cast

from oomproof.files.regular import NotAFile, open_regular

PATIENCE = 5.0
"""seconds to wait for somebody who opens a pipe to write"""
_LOOKING = 0.1


def open_log(path: Path) -> io.BufferedReader:
    """Opens a file or a named pipe to read its bytes; OSError for a device, which has no end, and for a pipe that
    nobody writes to."""
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # first: to open a device may already do something
        raise NotAFile(None, "a device, which has no end", str(path))
    if not stat.S_ISFIFO(mode):
        return cast("io.BufferedReader", open_regular(path))
    # With O_NONBLOCK, for open() would wait for ever where nobody writes.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not _has_a_writer(descriptor):
            raise NotAFile(None, f"a pipe that nobody has opened to write for {PATIENCE:.0f} s", str(path))
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _has_a_writer(descriptor: int) -> bool:
    """Waits for one, be it that he says nothing yet: a training may take a minute to its first line."""
    wait, deadline = select.poll(), time.monotonic() + PATIENCE
    wait.register(descriptor, select.POLLIN)
    while time.monotonic() < deadline:
        if wait.poll(_LOOKING * 1000):
            return True
        try:
            # Without a writer there is nothing to read, and no need to wait for it. A byte that came since poll() is
            # lost, the first of a log.
            os.read(descriptor, 1)
        except BlockingIOError:
            return True
    return False
