"""The parent's side of tracing the Object Detection API: what becomes of answers, errors and deaths of the child."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomproof.errors import JobError
from oomproof.memory.files import timeline_file
from oomproof.memory.timeline import Builder
from oomproof.trace.tf_object_detection import process
from oomproof.trace.tf_object_detection.request import ERROR, PROGRESS, TIMELINE, WORK, StepRequest

REQUEST = StepRequest("model { }", 2, 64, 64, 1)
Child = Any


def write_answer(folder: Path) -> None:
    step = Builder()
    step.enter("forward")
    step.allocate(1 << 20, kind="activation", owner="net", op="Conv2D")
    timeline_file.save(step.build(), folder / TIMELINE)
    row = np.array([1])
    with (folder / WORK).open("wb") as file:
        np.savez(file, **dict.fromkeys(("tick", "owner", "phase", "flops", "bytes", "form"), row))


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    """Puts a function of the folder in the child's place, and counts how often it runs."""
    monkeypatch.setattr(process, "require_api", lambda what: None)
    monkeypatch.setattr(process, "_kept", {})
    runs: list[Path] = []

    def put(does: Any) -> list[Path]:
        def run(folder: Path, progress: Any) -> None:
            runs.append(folder)
            does(folder)

        monkeypatch.setattr(process, "_run", run)
        return runs

    return put


def test_a_step_is_traced_once_and_its_folder_goes(child: Child) -> None:
    runs = child(write_answer)
    first = process.trace_api_step(REQUEST, "pipeline.config")
    assert process.trace_api_step(REQUEST, "pipeline.config") is first
    assert first.peak().bytes == 1 << 20
    assert len(first.work) == 1, "a file keeps no work; it comes beside it"
    [folder] = runs
    assert not folder.exists()


def test_what_the_api_refuses_is_one_line(child: Child) -> None:
    text = "Unknown ssd feature_extractor: x\n" + "and more " * 100
    child(lambda folder: (folder / ERROR).write_text(json.dumps({"kind": "ValueError", "text": text})))
    with pytest.raises(JobError, match=r"pipeline.config: .*ValueError: Unknown ssd feature_extractor") as failure:
        process.trace_api_step(REQUEST, "pipeline.config")
    assert "\n" not in str(failure.value)
    assert len(str(failure.value)) < 500


def test_a_child_that_dies_leaves_its_last_words(child: Child) -> None:
    child(lambda folder: (folder / "output.txt").write_text("hello\nterminate called\n\n"))
    with pytest.raises(JobError, match="ended without an answer: terminate called"):
        process.trace_api_step(REQUEST, "pipeline.config")


def test_progress_is_told_and_ctrl_c_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(command: Any, **how: Any) -> subprocess.Popen[bytes]:
        child = real([sys.executable, "-c", "import sys; sys.stdin.read()"], **how)
        started.append(child)
        return child

    def interrupt(text: str) -> None:
        if text == "halfway":
            raise KeyboardInterrupt

    (tmp_path / PROGRESS).write_text("begun\nhalfway\n")
    monkeypatch.setattr(process.subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        process._run(tmp_path, interrupt)
    assert started[0].poll() is not None
