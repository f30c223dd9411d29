"""Logs of several runs: why the last one ended, not what an earlier one died of."""

from __future__ import annotations

import pytest

import oomproof

TRAINED = [
    *(f"Epoch {epoch}/12 step {step} loss 0.{step}" for epoch in range(1, 13) for step in (10, 20)),
    "Training complete",
]
TESTED = [f"Test: [{step}/124] Data 75.7 ({step}.1) Batch 76.3" for step in (10, 20, 30, 40)]
OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.20 GiB (GPU 0; 23.69 GiB total capacity; 21.90 GiB already "
    "allocated; 312.00 MiB free; 22.30 GiB reserved in total by PyTorch)"
)
STACK = ["Traceback (most recent call last):", '  File "train.py", line 8, in <module>', "    model(images)"]


@pytest.mark.parametrize(
    "error",
    [
        "train.py: error: argument --name: expected one argument",
        "FileNotFoundError: [Errno 2] No such file or directory: 'images/7.jpg'",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4 and 8x4)",
    ],
)
def test_an_error_behind_which_a_run_came_to_its_end(error: str) -> None:
    found = oomproof.explain([*STACK, error, *TRAINED])
    assert (found.cause, "came to its end" in found.verdict) == ("not_memory", True)
    assert oomproof.explain([*TRAINED[:4], *STACK, error]).why.startswith(f"line 8: {error}"[:20])


def test_an_error_behind_which_a_run_went_on_and_no_end() -> None:
    found = oomproof.explain([*STACK, "FileNotFoundError: [Errno 2] No such file or directory: 'a.jpg'", *TESTED])
    assert found.cause == "unknown"
    assert "line 4 is not the end" in found.why


def test_times_that_are_printed_after_an_error_are_no_later_run() -> None:
    times = ["[06/11 10:00:05 d2.engine.hooks]: Total training time: 0:00:05 (0:00:00 on hooks)"]
    found = oomproof.explain([*STACK, "FileNotFoundError: [Errno 2] No such file or directory: 'a.jpg'", *times])
    assert found.why.startswith("line 4: FileNotFoundError")


def test_the_last_of_several_cancelled_jobs() -> None:
    ends = [f"slurmstepd: error: *** JOB {job} ON n{job} CANCELLED AT 2024-06-11T02:2{job}:53 ***" for job in (4, 5)]
    found = oomproof.explain([*STACK, "ValueError: no such split", ends[0], "loading", ends[1]])
    assert "SIGTERM" in found.verdict
    assert "*** JOB 5 ON" in found.why
    assert "ValueError" in oomproof.explain([*STACK, "ValueError: no such split", ends[0]]).why


def test_memory_ran_out_and_a_later_run_did_better() -> None:
    found = oomproof.explain([*STACK, OOM, *TRAINED])
    assert found.cause == "batch_too_big"
    assert f"a later run in this log came to its end (line {4 + len(TRAINED)})" in found.why
    assert "later run" not in oomproof.explain([*TRAINED[:4], *STACK, OOM]).why


def test_a_rank_that_failed_while_others_printed_on() -> None:
    lines = [*(f"[rank1]: {line}" for line in (*STACK, OOM)), *(f"[rank0]: {line}" for line in TRAINED[:5])]
    assert "later run" not in oomproof.explain(lines).why


@pytest.mark.parametrize(
    ("left", "cause"), [("17:59:33", "unknown"), ("1 day, 2:00:01", "unknown"), ("0:00:00", "not_memory")]
)
def test_detectron2_says_its_times_when_it_is_stopped_too(left: str, cause: str) -> None:
    steps = [
        f"[06/11 10:0{n}:00 d2.utils.events]:  eta: {left}  iter: {20 * n + 19}  total_loss: 0.5" for n in range(9)
    ]
    end = "[06/11 10:09:00 d2.engine.hooks]: Total training time: 3:49:40 (0:47:23 on hooks)"
    assert oomproof.explain([*steps, end]).cause == cause
