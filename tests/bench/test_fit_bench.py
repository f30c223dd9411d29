"""bench/fit.py: its arithmetic, its table, and one small job planned and trained under a real memory limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from fit_table import OURS, Row, aims, budget_of, changed, document, markdown, ratio, table  # noqa: E402
from fit_worker import Worker  # noqa: E402

MIB = 1 << 20


def row(method: str, seconds: float, answer: float = 1.0, error: str = "", job: str = "net") -> Row:
    return Row(job, 50, 600 * MIB, method, "batch=4", 8, (seconds,) * 3 if not error else (), answer, error)


def test_budgets_are_shares_of_what_lies_above_the_floor() -> None:
    assert budget_of(1000 * MIB, 200 * MIB, 50) == 600 * MIB
    assert budget_of(1000 * MIB, 200 * MIB, 100) == 1000 * MIB
    assert budget_of(1000 * MIB, 0, 35) == 350 * MIB


def test_speed_is_the_median_and_ratios_stay_within_a_job_and_budget() -> None:
    ours = Row("net", 50, 600 * MIB, OURS, "", 8, (1.0, 9.0, 2.0), 1.0)
    assert ours.speed == 4.0
    rival, other = row("halving", 4.0), row("halving", 4.0, job="another")
    assert ratio([ours, rival, other], rival) == 2.0
    assert ratio([ours, rival, other], other) == 0.0, "no plan of that job to compare with"


def test_a_ratio_is_taken_turn_by_turn() -> None:
    """The machine became five times slower after the first turn: both methods met it, and neither is the worse."""
    ours = Row("net", 50, 600 * MIB, OURS, "", 8, (1.0, 5.0, 5.0), 1.0)
    rival = Row("net", 50, 600 * MIB, "halving", "", 4, (1.0, 5.0, 5.0), 1.0)
    assert ratio([ours, rival], rival) == 2.0


def test_aims_that_are_met() -> None:
    rows = [row(OURS, 1.0, 1.0), row("halving", 1.01, 10.0), row("checkpointing", 1.4, 2.0)]
    assert all(met for met, _ in aims(rows).values())


def test_aims_that_are_missed_say_where() -> None:
    halved = replace(row("halving", 0.45, 9.0), batch=4)
    rows = [row(OURS, 1.0, 1.0), halved, row(OURS, 1.0, error="out of memory", job="big")]
    (inside, where), (kept, _), (quicker, slower), (sooner, late) = aims(rows).values()
    assert kept, "no rival kept the batch"
    assert not inside and "big at 50 %: out of memory" in where
    assert not quicker and "net at 50 % halving 0.90x" in slower
    assert not sooner and "net at 50 % halving 9.00x" in late


def test_a_difference_within_noise_is_no_miss_and_is_counted() -> None:
    met, figures = list(aims([row(OURS, 1.0), row("checkpointing", 0.98, 20.0)]).values())[1]
    assert met and "1 slower by less than 3%" in figures


def test_a_row_that_failed_is_shown_with_its_reason() -> None:
    rows = [row(OURS, 1.0), row("compile", 0, error="RuntimeError: too large")]
    for text in (table(rows), markdown(rows)):
        assert "no: RuntimeError: too large" in text
        assert "8.00" in text, "images a second of ours"
    found = document(rows, {"threads": 1})
    assert [each["fits"] for each in found["rows"]] == [True, False]
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(document(rows, {"threads": 1})))


def test_settings_are_told_briefly() -> None:
    assert changed({}) == "as it is"
    assert changed({"batch": 4, "checkpoint": "a,b,c"}) == "batch=4 checkpoint=3 modules"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_plan_runs_inside_a_limit_that_the_job_as_it_is_breaks() -> None:
    with Worker("tiny", 1) as worker:
        whole = worker.ask("peak")
        budget = budget_of(whole["peak"], whole["floor"], 50)
        room = budget + 12 * MIB  # what the process takes besides was measured as 4 MiB
        plan = worker.ask("plan", budget=budget, speed={"tflops": 0.06, "bandwidth": 10.0})
        assert plan["fits"] and plan["expected"] <= budget
        worker.ask("run", settings=plan["settings"], batch=16, room=room)
        steps = [worker.ask("step") for _ in range(2)]
        assert all(step.get("seconds", 0) > 0 for step in steps), steps
        worker.ask("run", settings={}, batch=16, room=room)
        assert "can't allocate memory" in worker.ask("step")["error"]
        found = worker.ask("find", how="halving", room=room)
        assert found["batch"] < 16 and found["trials"] > 1


@pytest.mark.thorough
def test_a_worker_that_dies_is_told_and_not_waited_for() -> None:
    with Worker("no such job", 1) as worker:
        assert "died" in worker.ask("peak")["error"]


@pytest.mark.thorough
def test_a_share_beyond_all_is_refused() -> None:
    command = [sys.executable, "-W", "ignore", str(BENCH / "fit.py"), "--budget", "170"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert run.returncode != 0
    assert "from 1 to 100; got 170" in run.stderr
