"""Ends a script's process and everything that it has started, wherever it went."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

TAG = "OOMPROOF_SCRIPT"
"""in the environment of the script's process, and so in that of all that it starts"""


def end_all(child: subprocess.Popen[bytes], tag: str) -> None:
    """The process group first; then what has left it, which is known by its environment."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in _tagged(tag):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    child.wait()


def _tagged(tag: str) -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(TAG) == tag:
                found.append(process.pid)
    return found
