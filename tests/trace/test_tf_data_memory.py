"""Pipelines are filled for real, each in a process of its own, and resident memory is held against the forecast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: there is no pipeline to fill")

PROGRAM = Path(__file__).parents[2] / "bench" / "tf_data.py"


def rows(*arguments: str) -> dict[str, dict[str, int]]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(PROGRAM), "--json", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=900)
    return {row["name"]: row for row in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc, as Linux has it")
def test_forecasts_are_within_ten_percent_of_resident_memory() -> None:
    measured = rows()
    assert len(measured) == 12
    off = {name: row["forecast"] / row["measured"] - 1 for name, row in measured.items()}
    assert all(abs(each) < 0.1 for each in off.values()), off
    assert all(row["measured"] < row["high"] for row in measured.values()), measured


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc, as Linux has it")
@pytest.mark.parametrize(("only", "count"), [("shuffle(300)", 2), ("interleave", 1)])
def test_gaps_of_malloc_as_it_is_are_forecast(only: str, count: int) -> None:
    """glibc's heap keeps gaps between elements and batches. How large they get is chance, so the middle of three runs
    counts; the upper figure is above every run. All pipelines take a quarter of an hour: ``bench/tf_data.py``."""
    measured = rows("--plain", "--runs", "3", "--only", only)
    assert len(measured) == count
    off = {name: row["forecast"] / row["measured"] - 1 for name, row in measured.items()}
    assert all(abs(each) < 0.15 for each in off.values()), off
    assert all(row["most"] < row["high"] for row in measured.values()), measured
