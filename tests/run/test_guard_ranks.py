"""Two processes train one model, and memory runs out in one of them alone: both go on, with equal parameters."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


def train(
    folder: Path, fails_at: int = -1, too_large: int | None = None, guarded: bool = True, sharded: bool = False
) -> list[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    out = folder / "weights"
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    command = [sys.executable, HERE / "guarded_ranks.py", json.dumps([fails_at, too_large, guarded, sharded]), out]
    ranks = [
        subprocess.Popen(
            command, env={**common, "RANK": str(rank), "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for each in ranks:
        _, errors = each.communicate(timeout=300)
        assert each.returncode == 0, errors[-3000:]
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(2)]


def flat(found: Any) -> list[float]:
    return [value for values in found["weights"] for value in values]


@pytest.mark.parametrize("sharded", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_one_process_fails_alone(tmp_path: Path, sharded: bool) -> None:
    if sharded:
        pytest.importorskip("torch", minversion="2.14", reason="fully_shard of older versions cannot begin anew")
    plain = train(tmp_path, guarded=False)
    assert flat(plain[0]) == flat(plain[1])
    found = train(tmp_path, fails_at=12, sharded=sharded)
    assert [each["failed"] for each in found] == [0, 1]
    assert flat(found[0]) == flat(found[1])
    assert flat(found[0]) == pytest.approx(flat(plain[0]), rel=1e-9, abs=1e-12)


def test_one_process_cannot_go_on_and_all_stop_together(tmp_path: Path) -> None:
    found = train(tmp_path, too_large=200)
    assert "another process ran out of memory" in found[0]["state"]
    assert "nothing left to try" in found[1]["state"]
    assert flat(found[0]) == flat(found[1])
