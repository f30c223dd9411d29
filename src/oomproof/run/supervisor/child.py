"""One run of a command: its output goes on to ours and its end is kept; signals go to it; nothing of it outlives us."""

from __future__ import annotations

import contextlib
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

from oomproof.errors import InputError
from oomproof.run.monitor.meters import host_bytes
from oomproof.run.supervisor.belonging import (
    MARK,
    adopt_orphans,
    die_with_parent,
    end_all,
    end_watch,
    new_mark,
    own_children,
    reap_orphans,
    watch_last,
)
from oomproof.run.supervisor.output import TAIL, pass_on

PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
GRACE = 10.0
"""seconds that what a command leaves behind has to end after SIGTERM before it is killed"""


@dataclass(frozen=True)
class FinishedRun:
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


def run_command(command: Sequence[str], extra: Mapping[str, str], every: float = 1.0) -> FinishedRun:
    """Runs to the end. Whatever it has started is ended with it."""
    adopt_orphans()
    kills, begin = count_oom_kills(), time.monotonic()
    tail: deque[bytes] = deque(maxlen=TAIL)
    mark, known = new_mark(), own_children()
    peak = 0
    with _signals_passed_on() as passing:
        watch = watch_last(mark)
        try:
            process = _start(command, {**os.environ, **extra, MARK: mark})
            readers = _read_output(process, tail)
            try:
                passing.begin(process)
                while True:
                    try:
                        process.wait(timeout=every)
                        break
                    except subprocess.TimeoutExpired:
                        peak = max(peak, host_bytes(process.pid))
                        reap_orphans(process, known | ({watch.pid} if watch else set()))
                        passing.say_if_slow()
            finally:
                end_all(process, mark, GRACE)
        finally:
            end_watch(watch)
    for reader in readers:
        reader.join(timeout=5)
    kills = count_oom_kills() - kills
    return FinishedRun(process.returncode, list(tail), time.monotonic() - begin, peak, kills, bool(passing.asked))


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent if sys.platform.startswith("linux") else None,  # noqa: PLW1509
        )
    except OSError as error:
        raise InputError(f"{command[0]} cannot be started: {error.strerror}; expected a command after --") from None


def _read_output(process: subprocess.Popen[bytes], tail: deque[bytes]) -> list[threading.Thread]:
    readers = [
        threading.Thread(target=pass_on, args=(stream, to, tail), daemon=True)
        for stream, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    ]
    for reader in readers:
        reader.start()
    return readers


class _Passing:
    """Signals on their way to the command; ``asked`` has those that mean an end. The third of them kills."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._since = 0.0

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """What came before the command had begun goes to it now."""
        self._process = process
        for number in list(self.asked):
            self._send(number)

    def take(self, number: int, _: object) -> None:
        if number in _ENDING:
            self.asked.append(number)
            self._since = self._since or time.monotonic()
        self._send(signal.SIGKILL if len(self.asked) > 2 else number)

    def say_if_slow(self) -> None:
        if self._since and time.monotonic() - self._since > GRACE:
            self._since = float("inf")
            left = "once more kills" if len(self.asked) == 2 else "twice more kills"
            complain = f"oomproof: the command was asked to end {GRACE:.0f} s ago and still runs: Ctrl-C {left} it"
            print(complain, file=sys.stderr, flush=True)

    def _send(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)


@contextlib.contextmanager
def _signals_passed_on() -> Iterator[_Passing]:
    """Signals that come to us go to all of the command's processes. Those that we were started to ignore, as by nohup,
    stay ignored, by the command too, which inherits that."""
    passing = _Passing()
    if threading.current_thread() is not threading.main_thread():
        yield passing
        return
    taken = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, passing.take) for number in taken}
    try:
        yield passing
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def count_oom_kills() -> int:
    """Of our control group, as the kernel counts; 0 where it does not tell."""
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()
        name = next(line.split(":", 2)[2] for line in own if line.startswith("0::"))
        events = Path(f"/sys/fs/cgroup{name}/memory.events").read_text().splitlines()
        return int(next(line.split()[1] for line in events if line.startswith("oom_kill ")))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
