"""One run of a command: its output goes on to ours and its end is kept; signals go to it; nothing of it outlives us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oomproof.errors import InputError
from oomproof.run.monitor.meters import host_bytes

TAIL = 4000
"""lines that are kept to explain the end"""
PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)
GRACE = 10.0
"""seconds that a command has to end after SIGTERM before it is killed"""
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # prctl's numbers, <sys/prctl.h>


@dataclass(frozen=True)
class Run:
    code: int
    """the exit code; below 0: the signal that ended it"""
    tail: list[bytes]
    seconds: float
    host_peak: int
    """bytes of the command and all its children, as often as they were read"""
    oom_kills: int
    """processes that the kernel killed for memory in this control group meanwhile"""
    stopped: bool
    """somebody sent us a signal to end"""


def run_command(command: Sequence[str], extra: Mapping[str, str], every: float = 1.0) -> Run:
    """Runs to the end. Whatever it has started is ended with it."""
    _adopt_orphans()
    kills, begin = count_oom_kills(), time.monotonic()
    tail: deque[bytes] = deque(maxlen=TAIL)
    try:
        process = subprocess.Popen(
            list(command),
            env={**os.environ, **extra},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform.startswith("linux") else None,  # noqa: PLW1509
        )
    except OSError as error:
        raise InputError(f"{command[0]} cannot be started: {error.strerror}; expected a command after --") from None
    readers = [
        threading.Thread(target=_pass_on, args=(stream, to, tail), daemon=True)
        for stream, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    ]
    for reader in readers:
        reader.start()
    peak = 0
    with _signals_passed_on(process) as asked:
        try:
            while True:
                try:
                    process.wait(timeout=every)
                    break
                except subprocess.TimeoutExpired:
                    peak = max(peak, host_bytes(process.pid))
        finally:
            _end_all(process)
    for reader in readers:
        reader.join(timeout=5)
    return Run(process.returncode, list(tail), time.monotonic() - begin, peak, count_oom_kills() - kills, bool(asked))


def _pass_on(stream: IO[bytes] | None, to: Any, tail: deque[bytes]) -> None:
    assert stream is not None
    out = getattr(to, "buffer", None)
    with stream:
        for line in iter(stream.readline, b""):
            tail.append(line.rstrip(b"\n"))
            with contextlib.suppress(OSError, ValueError):
                if out is not None:
                    out.write(line)
                    out.flush()
                else:
                    to.write(line.decode("utf-8", "replace"))


@contextlib.contextmanager
def _signals_passed_on(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Signals that come to us go to all of the command's processes; ``asked`` has those that mean an end."""
    asked: list[int] = []

    def forward(number: int, _: object) -> None:
        if number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", -1)):
            asked.append(number)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, forward) for number in PASSED_ON}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Politely, then not. Orphans of the command are ours by now, so they are found among our children."""
    import psutil

    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.wait()
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(each.pid) == process.pid:
                each.kill()
                each.wait(1)


def _adopt_orphans() -> None:
    """Processes whose parent has gone become our children, not the system's."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    """In the child: the kernel kills it if we are killed."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def count_oom_kills() -> int:
    """Of our control group, as the kernel counts; 0 where it does not tell."""
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()
        name = next(line.split(":", 2)[2] for line in own if line.startswith("0::"))
        events = Path(f"/sys/fs/cgroup{name}/memory.events").read_text().splitlines()
        return int(next(line.split()[1] for line in events if line.startswith("oom_kill ")))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
