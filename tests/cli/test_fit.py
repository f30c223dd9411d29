"""``oomproof fit``: what it asks of the planner, what it prints and writes, and how it ends.

The planner is replaced where a test wants a certain plan: its own tests are in tests/plan. Plans are made of real
forecasts of a saved step (planned.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planned import Asked, Jotter

from oomproof.cli.fit import join_option
from oomproof.errors import InputError
from oomproof.plan.plan import Plan
from oomproof.sources.job import Knob, Option

Run = Callable[..., Any]


def test_fits(run: Run, asked: Asked, step: str) -> None:
    code, out, err = run("fit", step, "--on", "8GiB")
    assert code == 0
    assert out.splitlines()[0].startswith("Verdict  fits 8.00 GiB with 1 change: ")
    assert "batch 16 -> 4 x 4" in out
    assert err.splitlines() == [f"opening {step}", "tracing the job as it is", "looking at batch 4 x 4"]


def test_what_is_asked(run: Run, asked: Asked, step: str) -> None:
    run("fit", step, "--on", "T4", "--batch", "8", "--image-size", "640x640", "--set", "precision=bf16", "-q")
    run("fit", step, "--on", "T4", "--keep", "identical", "--allow", "a, b", "--allow", "c", "-q")
    run("fit", step, "--on", "T4", "--ram", "16GiB", "-q")
    first, second, third = asked.calls
    assert (first["ram"], third["ram"]) == (None, 16 << 30)
    assert first["on"].name == "Tesla T4"
    assert (first["keep"], first["allow"]) == ("equivalent", ())
    assert (first["batch"], first["image_size"], first["precision"]) == ("8", "640x640", "bf16")
    assert (second["keep"], second["allow"]) == ("identical", ("a", "b", "c"))


def test_nothing_fits(run: Run, asked: Asked, step: str) -> None:
    asked.plan = lambda plan: replace(plan, needs=("--allow image_size",))
    code, out, _ = run("fit", step, "--on", "2GiB", "-q")
    assert code == 2
    assert out.startswith("Verdict  does not fit 2.00 GiB even with 1 change")
    assert "--allow image_size" in out


def test_json_is_all_there_is(run: Run, asked: Asked, step: str) -> None:
    code, out, err = run("fit", step, "--on", "8GiB", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["fits"] is True
    assert document["changes"][0]["to"] == "4 x 4"
    assert document["written"] is None
    code, out, _ = run("fit", step, "--on", "2GiB", "--json")
    assert (code, json.loads(out)["fits"]) == (2, False)


def test_quiet(run: Run, asked: Asked, step: str) -> None:
    assert run("fit", step, "--on", "8GiB", "--quiet").err == ""


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_interrupted_search_shows_the_best_so_far(run: Run, asked: Asked, jotter: Jotter, form: list[str]) -> None:
    asked.plan = lambda plan: replace(plan, interrupted=True)
    code, out, err = run("fit", "jot", "--on", "8GiB", "-q", "--write", *form)
    assert code == 130
    assert (json.loads(out)["verdict"] if form else out).removeprefix("Verdict  ").startswith("stopped early; the best")
    assert err.splitlines()[-1] == "oomproof: interrupted"
    assert "was not written, since the search was stopped" in err
    assert not jotter.place.exists()


def test_an_interrupt_before_anything_was_found(run: Run, asked: Asked, step: str) -> None:
    def interrupted(plan: Plan) -> Plan:
        raise KeyboardInterrupt

    asked.plan = interrupted
    assert run("fit", step, "--on", "8GiB", "-q") == (130, "", "oomproof: interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [["jot", "--write"], ["--write", "jot"], ["jot", "--write", "--quiet"], ["--write", "--quiet", "jot"]],
)
def test_write_to_the_jobs_own_place(run: Run, jotter: Jotter, arguments: list[str]) -> None:
    code, out, _ = run("fit", *arguments, "--on", "8GiB")
    assert code == 0
    assert json.loads(jotter.place.read_text()) == {"batch": 4, "accumulate": 4}
    report, _, after = out.partition(f"\nwrote {jotter.place}; paste this:\n")
    assert report.startswith("Verdict")
    assert after == "import oomproof\n"


@pytest.mark.parametrize(
    "arguments",
    [["jot", "--write", "there.json"], ["--write", "there.json", "jot"], ["--write=there.json", "jot", "-q"]],
)
def test_write_to_a_file(
    run: Run, jotter: Jotter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("fit", *arguments, "--on", "8GiB").code == 0
    assert (tmp_path / "there.json").exists() and not jotter.place.exists()


def test_write_with_json_names_the_file(run: Run, jotter: Jotter) -> None:
    out = run("fit", "jot", "--on", "8GiB", "--write", "--json").out
    assert json.loads(out)["written"] == str(jotter.place)
    assert jotter.place.exists()


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_miss_is_not_written_and_says_so(run: Run, jotter: Jotter, form: list[str]) -> None:
    code, out, err = run("fit", "jot", "--on", "2GiB", "-q", "--write", *form)
    assert code == 2
    assert err == f"oomproof: {jotter.place} was not written, since nothing fits\n"
    assert not jotter.place.exists()
    assert not form or json.loads(out)["written"] is None


def test_from_starts_at_a_written_file(run: Run, asked: Asked, step: str, tmp_path: Path) -> None:
    from oomproof.changes.settings_file import write_settings

    file = tmp_path / "settings.json"
    write_settings(file, "job", "8GiB", {"workers": 3, "prefetch_factor": 5}, ())
    run("fit", step, "--on", "8GiB", "--from", str(file), "--set", "workers=1", "-q")
    assert asked.calls[0]["prefetch_factor"] == 5
    assert asked.calls[0]["workers"] == "1"
    document = json.loads(run("check", step, "--on", "8GiB", "--from", str(file), "--json").out)
    assert document["settings"]["workers"] == 3
    assert (
        json.loads(run("check", step, "--on", "8GiB", "--from", str(file), "--set", "workers=1", "--json").out)[
            "settings"
        ]["workers"]
        == 1
    )


def test_knobs_are_listed(run: Run, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    knob = Knob(
        "batch", (Option(16, {"batch": 16}), Option("8 x 2", {"batch": 8, "accumulate": 2})), "identical", "mean"
    )
    monkeypatch.setattr("oomproof.api.fit.list_knobs", lambda job, on, **settings: (knob,))
    code, out, _ = run("fit", step, "--on", "8GiB", "--knobs", "-q")
    assert code == 0
    assert "16 -> 8 x 2" in out
    assert json.loads(run("fit", step, "--on", "8GiB", "--knobs", "--json").out)[0]["name"] == "batch"


def test_what_the_planner_refuses_is_one_line(run: Run, asked: Asked, step: str) -> None:
    def refuse(plan: Plan) -> Plan:
        raise InputError("--keep identical and --allow image_size contradict each other")

    asked.plan = refuse
    code, out, err = run("fit", step, "--on", "8GiB", "--keep", "identical", "--allow", "image_size", "-q")
    assert (code, out) == (1, "")
    assert err == "oomproof: --keep identical and --allow image_size contradict each other\n"


def test_a_bare_option_before_another() -> None:
    assert join_option(["--write", "--on", "8GiB", "j"], "--write") == ["--write=", "--on", "8GiB", "j"]
    assert join_option(["j", "--write"], "--write") == ["j", "--write="]
    assert join_option(["j", "--write=x"], "--write") == ["j", "--write=x"]
    assert join_option([], "--write") == []
