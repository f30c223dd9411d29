"""Work that goes on beside this process, on another core: in a fork of it, which has all that it has.

Only for processes of our own. A fork of a process with threads may wait forever for a lock that one of them held, so
what gives no answer in time is computed here after all.

>>> with Beside(lambda: 6 * 7) as beside:
...     beside.result()
42
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Generic, Self, TypeVar

LONGEST = 60.0
"""seconds that an answer is waited for; the largest step seen took 12"""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux"""
T = TypeVar("T")


class Beside(Generic[T]):
    """``compute`` begins at once in a fork, and ``result`` waits for it; without ``fork`` it is computed when somebody
    asks. What it returns must be picklable."""

    def __init__(self, compute: Callable[[], T], *, fork: bool = True) -> None:
        self._compute = compute
        self._pid, self._answer = 0, -1
        if fork and sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1:
            self._begin()

    def result(self) -> T:
        answer = self._wait() if self._pid else b""
        self.end()
        # Of our own fork, which nobody else can write for.
        return pickle.loads(answer) if answer else self._compute()

    def end(self) -> None:
        """Ends what nobody waits for any more."""
        if not self._pid:
            return
        os.close(self._answer)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _begin(self) -> None:
        self._answer, into = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid:
            os.close(into)
            return
        try:
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            if os.getppid() == parent:
                with os.fdopen(into, "wb") as stream:
                    stream.write(pickle.dumps(self._compute()))
        finally:  # nothing of what this process would do at its end is the fork's to do
            os._exit(0)

    def _wait(self) -> bytes:
        """The answer; empty where there is none in time, or none at all."""
        parts, until = list[bytes](), time.monotonic() + LONGEST
        while select.select([self._answer], [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(self._answer, 1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)
        return b""
