"""What a monitor tells besides its file: scalars, the gap to the forecast, and whose memory grows."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oomproof.errors import CannotDo
from oomproof.memory.forecast import Range
from oomproof.run.monitor import monitor as monitoring
from oomproof.run.monitor.monitor import COST, Monitor
from oomproof.run.monitor.watching import Watch

MIB, GIB = 1 << 20, 1 << 30


class Writer:
    def __init__(self) -> None:
        self.seen: dict[tuple[str, int], float] = {}
        self.closed = False

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.seen[tag, step] = value

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_scalars_go_to_the_writer_that_was_given() -> None:
    writer = Writer()
    monitor = Monitor(device=lambda: (3 * MIB, 5 * MIB), tensorboard=writer)
    monitor.step()
    monitor.step()
    monitor.close()
    assert writer.seen["memory/device_MiB", 2] == 3 and writer.seen["memory/device_peak_MiB", 2] == 5
    assert writer.seen["memory/host_MiB", 1] > 10
    assert not writer.closed  # it is its owner's


@pytest.mark.skipif(find_spec("tensorboard") is not None or find_spec("tensorboardX") is not None, reason="installed")
def test_a_folder_without_tensorboard_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotDo, match="pip install tensorboard"):
        Monitor(tensorboard=tmp_path)


def test_a_folder_for_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    monitor = Monitor(device=lambda: (3 * MIB, 5 * MIB), tensorboard=tmp_path)
    monitor.step()
    monitor.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Scalars("memory/device_peak_MiB")[0].value == 5


@pytest.mark.parametrize(("peak", "expected"), [(5.0, ""), (6.5, "0.50 GiB above"), (3.0, "1.00 GiB below")])
def test_first_steps_are_held_against_the_forecast(
    peak: float, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    forecast: Any = SimpleNamespace(allocated=Range(5 * GIB, 4 * GIB, 6 * GIB))
    watch = Watch(forecast=forecast)
    watch.monitor._device = lambda: (GIB, int(peak * GIB))
    with caplog.at_level("WARNING", "oomproof.guard"):
        for _ in range(5):
            watch.step()
    if expected:
        assert len(caplog.messages) == 1 and expected in caplog.messages[0]
        assert expected in watch.monitor.close()
    else:
        assert not caplog.messages


WORKER = "kept = []\nwhile True:\n    input()\n    kept.append(bytearray(b'x') * (4 << 20))\n    print(flush=True)"
TRAINING = """
import subprocess, sys
from oomproof.run.monitor.monitor import Monitor

worker = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
)
monitor = Monitor(warm_up=float(sys.argv[2]))
for _ in range(40):
    print(file=worker.stdin, flush=True)
    worker.stdout.readline()
    monitor._next = -1.0  # every step, however short
    monitor.step()
worker.kill()
found = monitor.verdict()
print(found.kind, found.per_step, found.why, sep="\\n")
"""


@pytest.mark.parametrize(("warm_up", "expected"), [("0", "leak"), ("120", "growing")])
def test_workers_that_grow_are_named(warm_up: str, expected: str) -> None:
    """The training itself stays level, in a process where nothing else goes on; its child takes 4 MiB a step. While
    it may be warming up, it is not blamed."""
    command = [sys.executable, "-c", TRAINING, WORKER, warm_up]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kind, per_step, why = done.stdout.splitlines()
    assert kind == expected and ("child processes that grow" in why) == (expected == "leak")
    assert float(per_step) == pytest.approx(4 * MIB, rel=0.2)


def test_reading_costs_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory is read as seldom as its price asks for: by a clock that only steps and readings move."""
    now, spent = 0.0, 0.0

    def read() -> tuple[int, int]:
        nonlocal now, spent
        now, spent = now + 0.01, spent + 0.01
        return 100 * MIB, 0

    monkeypatch.setattr(monitoring, "own_and_children_bytes", read)
    monkeypatch.setattr(monitoring.time, "perf_counter", lambda: now)
    monitor = Monitor()
    for _ in range(10_000):
        now += 0.005
        monitor.step()
    assert len(monitor.host) > 15
    assert spent - 0.01 <= COST * now  # the first reading is at once
