"""Ends a script's process and everything that it has started, wherever it went.

What a script starts may leave its process group, and may be given an environment without our tag in it. The script's
own process takes orphans in (child/follow.py), so that all of it is below that process as long as it lives; it is
looked at while the script runs, and stopped before it is ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress

import psutil

TAG = "OOMPROOF_SCRIPT"
"""in the environment of the script's process, and so in that of most that it starts"""
_EVERY = 0.5
"""seconds between two looks"""
_MOST_ROUNDS = 20
"""how often what forks faster than it is ended is ended again"""


class Family:
    """A script's process with what has come of it."""

    def __init__(self, child: subprocess.Popen[bytes], tag: str) -> None:
        self._child, self._tag = child, tag
        self._seen: dict[int, psutil.Process] = {}
        self._looked = 0.0

    def look(self) -> None:
        """Remembers the processes that there are now, at most twice a second."""
        if time.monotonic() - self._looked < _EVERY:
            return
        self._looked = time.monotonic()
        self._below()

    def end(self) -> None:
        with suppress(OSError):
            os.kill(self._child.pid, signal.SIGSTOP)
        for _ in range(_MOST_ROUNDS):
            alive = {each.pid: each for each in (*self._below(), *self._find_tagged(), *self._seen.values())}
            alive.pop(self._child.pid, None)
            if not sum(map(_kill, alive.values())):
                break
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        with suppress(OSError):
            self._child.kill()
        self._child.wait()

    def _below(self) -> list[psutil.Process]:
        try:
            found: list[psutil.Process] = psutil.Process(self._child.pid).children(recursive=True)
        except psutil.Error:
            return []
        self._seen.update((each.pid, each) for each in found)
        return found

    def _find_tagged(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and process.environ().get(TAG) == self._tag:
                    found.append(process)
        return found


def _kill(process: psutil.Process) -> bool:
    """Whether it was alive. psutil looks whether the number still belongs to the same process."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.kill()
    except (psutil.Error, OSError):
        return False
    return True
