"""``oomproof explain``"""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

Run = Callable[..., tuple[int, str, str]]
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "oom.log")
GIB = 1 << 30
FULL = (
    "batch_size=8\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
    "{asked}. GPU 0 has a total capacity of 8.00 GiB "
    "of which 100.00 MiB is free. Of the allocated memory {allocated} is allocated by PyTorch, and 60.00 MiB is "
    "reserved by PyTorch but unallocated."
)


def test_opens_with_verdict_why_next(run: Run) -> None:
    code, out, err = run("explain", EXAMPLE)
    assert (code, err) == (0, "")
    starts = [line.split()[0] for line in out.splitlines() if line and not line.startswith(" ")]
    assert starts[:4] == ["Verdict", "Why", "Next", "Evidence"]
    assert "2.18 GiB" in out.splitlines()[0]
    assert "cause id: gt_boxes" in out


def test_json_schema(run: Run) -> None:
    code, out, _ = run("explain", EXAMPLE, "--json")
    document = json.loads(out)
    assert code == 0
    assert list(document) == ["verdict", "why", "next", "cause", "causes", "facts", "alternatives"]
    assert document["causes"][0]["id"] == document["cause"] == "gt_boxes"
    assert all(list(cause) == ["id", "confidence", "evidence"] for cause in document["causes"])
    assert document["facts"]["requested"] == int(2.18 * GIB)
    assert (document["facts"]["framework"], document["facts"]["batch"]) == ("ultralytics", 16)


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))


def test_reads_what_is_piped_in(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, "Shuffle buffer filled.\nKilled\n")
    code, out, _ = run("explain", "-", "--json")
    assert (code, json.loads(out)["cause"]) == (0, "host_shuffle_buffer")


@pytest.mark.parametrize("text", ["KeyError: 'x'\n", "", "all is well\n", "Killed\n"])
def test_a_diagnosis_of_any_kind_is_exit_code_0(run: Run, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    piped(monkeypatch, text)
    code, out, err = run("explain", "-")
    assert (code, err) == (0, "")
    assert out.startswith("Verdict")


def test_what_cannot_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.pickle").write_bytes(b"\x80\x04garbage")
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b\x08\x00")
    for name in ("none.log", "", "a.pickle", "a.gz"):
        code, out, err = run("explain", str(tmp_path / name))
        assert (code, out, err.count("\n")) == (1, "", 1), name
        assert err.startswith("oomproof: ")


def test_options_of_the_job_need_the_job(run: Run) -> None:
    code, _, err = run("explain", EXAMPLE, "--on", "8GiB")
    assert (code, "--job" in err) == (1, True)


def test_the_forecast_confirms_what_cannot_fit(run: Run, step: str, tmp_path: Path) -> None:
    """The step needs 2.2 GiB and more; a card of 2 GiB is too small for it, whatever else the log says."""
    log = tmp_path / "train.log"
    log.write_text(FULL.format(asked="512.00 MiB", allocated="1.60 GiB").replace("8.00 GiB", "2.00 GiB"))
    document = json.loads(run("explain", str(log), "--job", step, "--json")[1])
    assert document["cause"] == "batch_too_big"
    assert "it cannot fit" in document["why"]
    assert document["facts"]["forecast_device"] > 2 * GIB
    alone = json.loads(run("explain", str(log), "--json")[1])
    assert document["causes"][0]["confidence"] > alone["causes"][0]["confidence"]


def test_the_forecast_refutes_the_batch(run: Run, step: str, tmp_path: Path) -> None:
    """The step needs 2.2 GiB; 7.7 were allocated after many steps, so something else holds them."""
    log = tmp_path / "train.log"
    steps = "".join(f"iter: {number} loss: 1.0\n" for number in range(0, 2000, 20))
    log.write_text(steps + FULL.format(asked="512.00 MiB", allocated="7.70 GiB"))
    document = json.loads(run("explain", str(log), "--job", step, "--json")[1])
    assert document["cause"] == "leak"
    assert "7.70 GiB" in document["verdict"]


def test_the_forecast_points_to_others(run: Run, step: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(FULL.format(asked="512.00 MiB", allocated="1.00 GiB"))
    document = json.loads(run("explain", str(log), "--job", step, "--on", "8GiB", "--json")[1])
    assert document["cause"] == "other_process"


def test_job_with_a_pipe_needs_a_device(run: Run, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, "Killed\n")
    code, _, err = run("explain", "-", "--job", step)
    assert (code, "--on" in err) == (1, True)


def snapshot(path: Path, kept: bool) -> str:
    """Thirty steps of a 100 MiB activation; if ``kept``, a line of the user's keeps 10 MiB of each."""
    frames = {name: [{"filename": f"/home/u/{name}.py", "line": 7, "name": "step"}] for name in ("net", "log")}
    trace = []
    for step in range(30):
        address = 1000 + step
        trace.append({"action": "alloc", "addr": address, "size": 100 << 20, "frames": frames["net"]})
        if kept:
            trace.append({"action": "alloc", "addr": 5000 + step, "size": 10 << 20, "frames": frames["log"]})
        for action in ("free_requested", "free_completed"):
            trace.append({"action": action, "addr": address, "size": 100 << 20, "frames": frames["net"]})
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, protocol=4))
    return str(path)


def test_a_snapshot_names_the_line_that_keeps_memory(run: Run, tmp_path: Path) -> None:
    document = json.loads(run("explain", snapshot(tmp_path / "leak.pickle", True), "--json")[1])
    assert document["cause"] == "leak"
    assert "log.py:7 step" in document["verdict"]
    document = json.loads(run("explain", snapshot(tmp_path / "plain.pickle", False), "--json")[1])
    assert document["cause"] == "batch_too_big"
    assert "net.py:7 step" in document["verdict"]


def test_needs_neither_numpy_nor_a_framework() -> None:
    code = (
        f"import sys; from oomproof.cli import main; main(['explain', {EXAMPLE!r}]); "
        "print([name for name in ('numpy', 'torch', 'tensorflow') if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"


def test_a_snapshot_has_the_same_facts_as_a_log_and_takes_no_job(run: Run, step: str, tmp_path: Path) -> None:
    path = snapshot(tmp_path / "plain.pickle", False)
    facts = json.loads(run("explain", path, "--json")[1])["facts"]
    of_a_log = json.loads(run("explain", EXAMPLE, "--json")[1])["facts"]
    assert list(facts) == list(of_a_log)
    code, _, err = run("explain", path, "--job", step, "--on", "8GiB")
    assert (code, "snapshot" in err) == (1, True)


def test_a_missing_log_is_named_before_the_job_is_traced(run: Run, tmp_path: Path) -> None:
    code, _, err = run("explain", str(tmp_path / "none.log"), "--job", "no_such_job.py:job", "--on", "8GiB")
    assert (code, "none.log" in err) == (1, True)
