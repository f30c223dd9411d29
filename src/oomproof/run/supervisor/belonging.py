"""Which processes belong to a command, and their end: none outlives the supervisor, not even one that was killed.

Each has the command's mark in its environment, which it got from its parent; processes that became daemons or leaders
of a session of their own have it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "OOMPROOF_RUN"
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # prctl's numbers, <sys/prctl.h>

# Waits until the supervisor's end of its input is closed, which the kernel does however it ended.
_LAST_WATCH = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if sys.stdin.buffer.read() == b"":
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if sys.argv[1].encode() in file.read().split(b"\\0"):
                    os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass
"""


def new_mark() -> str:
    return f"{os.getpid()}.{time.monotonic_ns()}"


def find_marked(mark: str) -> list[int]:
    """The living processes with this mark, where the system shows environments."""
    found = []
    if sys.platform.startswith("linux"):
        line = f"{MARK}={mark}".encode()
        for place in Path("/proc").iterdir():
            if place.name.isdecimal():
                with contextlib.suppress(OSError):  # gone, or another user's
                    if line in (place / "environ").read_bytes().split(b"\0"):
                        found.append(int(place.name))
    return found


def watch_last(mark: str) -> subprocess.Popen[bytes] | None:
    """A process that ends the command's when this one is gone, though it was killed."""
    if not sys.platform.startswith("linux"):
        return None
    own = {name: value for name, value in os.environ.items() if name != MARK}
    with contextlib.suppress(OSError):  # without memory or processes left, the command is what matters
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAST_WATCH, f"{MARK}={mark}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=own,
        )
    return None


def end_watch(watch: subprocess.Popen[bytes] | None) -> None:
    if watch is not None:
        watch.communicate(b"done")


def end_all(process: subprocess.Popen[bytes], mark: str, grace: float) -> None:
    """Politely, then not: the command, and whatever it has left behind."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 1.0)):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        _send(left := find_marked(mark), number)
        until = time.monotonic() + patience
        while time.monotonic() < until and (process.poll() is None or find_marked(mark)):
            time.sleep(0.02)
        reap(left)
    process.wait()


def reap(pids: list[int]) -> None:
    """Orphans became our children; the dead ones are let go."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.waitpid(pid, os.WNOHANG)


def reap_orphans(process: subprocess.Popen[bytes], known: set[int]) -> None:
    """Dead children that are neither the command nor were there before it."""
    import psutil

    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.pid != process.pid and child.pid not in known and child.status() == psutil.STATUS_ZOMBIE:
                reap([child.pid])


def own_children() -> set[int]:
    import psutil

    return {child.pid for child in psutil.Process().children()}


def adopt_orphans() -> None:
    """Processes whose parent has gone become our children, not the system's."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """In the child: the kernel kills it if we are killed."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
