"""Real leaks of real scripts, watched from inside and outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from oomproof.cli import main
from oomproof.run.monitor import meters
from oomproof.run.monitor.live_tensors import count_tensors, find_growing
from oomproof.run.monitor.meters import host_bytes
from thorough import thorough_but

MIB = 1 << 20

HISTORY = {
    "losses kept with their graphs": """
        losses = []
        def step():
            x = torch.rand(1 << 16, requires_grad=True)
            losses.append((x * 2).exp().sum())
    """,
    "predictions of an evaluation": """
        results = {}
        def step():
            results[len(results)] = torch.rand(1 << 17)
    """,
    "arrays of a generator": """
        cache = []
        def step():
            cache.append(bytearray(1 << 19))
    """,
    "a closure for every step": """
        import atexit
        def step():
            big = torch.rand(1 << 17)
            atexit.register(lambda: big.sum())
    """,
    "no leak": """
        def step():
            x = torch.rand(1 << 20)
            return (x * 2).sum().item()
    """,
}


WATCHED = """
import sys, torch
from pathlib import Path
from oomproof.run.monitor.monitor import Monitor
{script}
monitor = Monitor(Path(sys.argv[1]), host_limit=1 << 40)
monitor._next = -1.0
for _ in range(60):
    step()
    monitor._next = -1.0  # every step, however short
    monitor.step(images=4)
verdict = monitor.verdict()
print(monitor.close(), verdict.per_step, verdict.step_of_end, sep="\\n")
"""


@pytest.mark.parametrize("script", thorough_but(["losses kept with their graphs", "no leak"], HISTORY))
def test_scripts_that_leak(script: str, tmp_path: Path) -> None:
    code = WATCHED.format(script=textwrap.dedent(HISTORY[script]))  # what a process has freed before hides a leak
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "memory.jsonl")], capture_output=True, text=True, check=True
    )
    summary, per_step, end = done.stdout.splitlines()[-3:]
    lines = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()]
    assert len(lines) == 61 and lines[10]["step"] == 11 and lines[10]["images"] == 4 and lines[10]["host"] > 10 * MIB
    assert lines[-1]["summary"].endswith(summary)
    if script == "no leak":
        assert lines[-1]["kind"] in ("steady", "caching"), summary
    else:
        assert lines[-1]["kind"] == "leak", summary
        assert 0.2 * MIB < float(per_step) < 2 * MIB
        assert end != "None"


WAITING = "import numpy; print('ready', flush=True); input()"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the system tells no shares")
def test_strangers_with_the_same_libraries_change_nothing() -> None:
    """Three processes that do nothing: the first has as much as before when the others have come."""
    waiting: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        new = subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        waiting.append(new)
        assert new.stdout is not None and new.stdout.readline() == b"ready\n"
        return new.pid

    try:
        first = start()
        before = host_bytes(first)
        start(), start()
        assert before > 5 * MIB and abs(host_bytes(first) - before) < MIB
    finally:
        for each in waiting:
            each.communicate(b"\n")


@pytest.mark.thorough
def test_growing_tensors_and_who_holds_them() -> None:
    model = nn.Linear(7, 3)

    class Logger:
        def __init__(self) -> None:
            self.losses: list[torch.Tensor] = []

    logger = Logger()
    before = count_tensors()
    for _ in range(10):
        logger.losses.append(model(torch.rand(2, 7)).sum())
    first = find_growing(before, count_tensors())[0]
    assert first.shape == () and first.more == 10 and first.graph
    assert "Logger.losses" in first.holder
    assert "keep .detach() or .item()" in str(first)
    kept = [torch.rand(5, 5) for _ in range(6)]
    found = next(group for group in find_growing(before, count_tensors()) if group.shape == (5, 5))
    assert "list kept in test_growing_tensors" in found.holder and not found.graph
    del kept


LEAKING = """
import sys, time
from pathlib import Path
log = Path(sys.argv[1])
kept = []
while len(kept) < 60:  # 4 MiB for every reading, however slow the machine is
    kept += [bytearray(4 << 20) for _ in range(log.read_text().count("\\n") - len(kept))]
    time.sleep(0.01)
"""


def test_watching_a_process_that_leaks_and_ends(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "watch.jsonl"
    log.touch()
    process = subprocess.Popen([sys.executable, "-c", LEAKING, str(log)])
    try:
        code = main(
            ["watch", str(process.pid), "--every", "0.05", "--warm-up", "1", "--ram", "8GiB", "--log", str(log)]
        )
    finally:
        process.kill()
        process.wait()
    out = capsys.readouterr().out
    assert code == 2
    assert "leak" in out and "will be reached" in out and "has ended" in out
    assert len(log.read_text().splitlines()) >= 60


def test_watching_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert main(["watch", str(process.pid), "--every", "0.1", "--for", "0.2"]) == 0
    finally:
        process.communicate(b"\n")
    out = capsys.readouterr().out
    assert "readings: short" in out and "has ended" not in out


def test_watching_one_that_has_ended_already(capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:  # its parent has not asked for it yet
        time.sleep(0.01)
    try:
        assert main(["watch", str(process.pid)]) == 0
    finally:
        process.wait()
    assert f"process {process.pid} has ended" in capsys.readouterr().out


def test_watching_a_process_of_somebody_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells shares of memory to a process's owner alone, and the line says what is counted then."""
    monkeypatch.setattr(meters, "tells_shares", lambda pid: False)
    assert main(["watch", str(os.getpid()), "--every", "0.1", "--for", "0.2"]) == 0
    assert "is another user's" in " ".join(capsys.readouterr().err.split())


def test_watching_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "999999999"]) == 1
    assert "there is no process 999999999" in capsys.readouterr().err
