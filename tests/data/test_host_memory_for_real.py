"""Real DataLoaders, each in a process of its own: what they and their workers take, held against the forecast."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: there is no DataLoader to run")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc, as Linux has it"),
]
PROGRAM = Path(__file__).parents[2] / "bench" / "host.py"


def rows(*arguments: str) -> dict[str, dict[str, int]]:
    command = [sys.executable, str(PROGRAM), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return {row["name"]: row for row in json.loads(done.stdout)}


def off(row: dict[str, int]) -> float:
    return row["forecast"] / row["measured"] - 1


@pytest.fixture
def strangers_shared_memory() -> Iterator[None]:
    """8 MiB of somebody else's, coming and going while a process measures its own."""
    ended = threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
                file.write(bytes(8 << 20))
                file.flush()
                ended.wait(0.5)
            ended.wait(0.5)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.mark.thorough
@pytest.mark.usefixtures("strangers_shared_memory")
def test_a_list_in_the_process_itself() -> None:
    [row] = rows("--only", "as list, 0 workers").values()
    assert abs(off(row)) < 0.15 and row["shm"] == row["measured_shm"] == 0


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["objects as list, 2 workers (fork), batch 16 x 32^2", "objects as buffers, 2"])
def test_workers_take_what_is_forecast(rule: str) -> None:
    found = rows("--only", rule)
    assert found
    assert all(abs(off(row)) < 0.15 for row in found.values()), found


@pytest.mark.thorough
def test_what_waits_in_shared_memory() -> None:
    [row] = rows("--only", "batch 4 x 256^2, listed").values()
    assert row["shm"] == pytest.approx(row["measured_shm"], rel=0.05)


@pytest.mark.thorough
def test_workers_that_stack_batches_stay_below_the_upper_figure() -> None:
    """What they keep of freed images is chance: 103 MiB each are expected, and 840 were seen."""
    found = rows("--only", "batch 16 x 256^2")
    assert len(found) == 2
    assert all(row["measured"] < row["high"] for row in found.values()), found
