"""Lightning's and Hugging Face's trainers on two processes (gloo), and memory runs out in one of them alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.slow]
HERE = Path(__file__).parent


def train(folder: Path, framework: str, *, guarded: bool = True, fails_at: int = -1, accumulate: int = 1) -> list[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = json.dumps([framework, guarded, fails_at, accumulate, str(folder / "weights")])
    torchrun = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "test", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, HERE / "guarded_trainers.py", given],
            env={**os.environ, **torchrun, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for each in ranks:
            _, errors = each.communicate(timeout=300)
            assert each.returncode == 0, errors[-3000:]
    finally:
        for each in ranks:
            each.kill()
            each.wait()
    return [json.loads((folder / f"weights.{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_one_process_fails_alone(framework: str, accumulate: int, tmp_path: Path) -> None:
    pytest.importorskip("lightning.pytorch" if framework == "lightning" else "accelerate")
    plain = train(tmp_path, framework, guarded=False, accumulate=accumulate)
    assert plain[0]["weights"] == plain[1]["weights"]
    found = train(tmp_path, framework, fails_at=8, accumulate=accumulate)
    assert [each["failed"] for each in found] == [0, 1] == [each["recoveries"] for each in found]
    assert found[0]["weights"] == found[1]["weights"]
    assert found[0]["weights"] == pytest.approx(plain[0]["weights"], rel=1e-9, abs=1e-12)
