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
    folder: Path,
    *,
    fails_at: int = -1,
    too_large: int | None = None,
    guarded: bool = True,
    sharded: bool = False,
    end: str = "",
) -> list[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for here in folder.glob("here.*"):  # of an earlier training
        here.unlink()
    out = folder / "weights"
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    given = json.dumps([fails_at, too_large, guarded, sharded, end])
    command = [sys.executable, HERE / "guarded_ranks.py", given, out]
    ranks = [
        subprocess.Popen(
            command,
            env={**common, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    if end in ("kill", "sleep", "gather", "go on"):
        try:
            said, errors = ranks[0].communicate(timeout=300)
        finally:
            ranks[1].kill()
            ranks[1].communicate()
        assert ranks[0].returncode == 3, errors[-3000:]
        return [said]
    for each in ranks:
        _, errors = each.communicate(timeout=300)
        assert each.returncode == 0, errors[-3000:]
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(2)]


def flat(found: Any) -> list[float]:
    return [value for values in found["weights"] for value in values]


@pytest.mark.thorough
@pytest.mark.parametrize("sharded", [False, True])
def test_one_process_fails_alone(tmp_path: Path, sharded: bool) -> None:
    if sharded:
        pytest.importorskip("torch", minversion="2.14", reason="fully_shard of older versions cannot begin anew")
    plain = train(tmp_path, guarded=False)
    assert flat(plain[0]) == flat(plain[1])
    found = train(tmp_path, fails_at=17 if sharded else 12, sharded=sharded)  # later, since room was looked for
    assert [each["failed"] for each in found] == [0, 1]
    assert flat(found[0]) == flat(found[1])
    assert flat(found[0]) == pytest.approx(flat(plain[0]), rel=1e-9, abs=1e-12)


@pytest.mark.thorough
def test_one_process_cannot_go_on_and_all_stop_together(tmp_path: Path) -> None:
    found = train(tmp_path, too_large=200)
    assert "another process ran out of memory" in found[0]["state"]
    assert "nothing left to try" in found[1]["state"]
    assert flat(found[0]) == flat(found[1])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("end", "sharded"),
    [("kill", False), ("kill", True), ("sleep", False), ("sleep", True), ("gather", True), ("go on", True)],
)
def test_a_process_that_dies_or_stands_still_does_not_leave_the_other_waiting(
    end: str, sharded: bool, tmp_path: Path
) -> None:
    if sharded:
        pytest.importorskip("torch", minversion="2.14", reason="fully_shard of older versions cannot begin anew")
    (said,) = train(tmp_path, sharded=sharded, end=end)
    assert "another process of this training has ended or does not answer" in said
    assert "oomproof explain LOG" in said


@pytest.mark.thorough
def test_no_room_for_whole_parameters_in_one_process_stops_both(tmp_path: Path) -> None:
    pytest.importorskip("torch", minversion="2.14", reason="fully_shard of older versions cannot begin anew")
    found = train(tmp_path, sharded=True, end="room")
    assert "do not fit beside what is held in another process" in found[0]["state"]
    assert "do not fit beside what is held here" in found[1]["state"]
    assert flat(found[0]) == flat(found[1])


@pytest.mark.thorough
def test_torchrun_ends_with_the_one_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    given = json.dumps([-1, None, True, False, "kill"])
    done = subprocess.run(
        [*command, HERE / "guarded_ranks.py", given, tmp_path / "weights"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode != 0
    assert "SIGKILL" in done.stderr or "has ended or does not answer" in done.stdout
