"""``oomproof fit``: what it asks of the planner, what it prints and writes, and how it ends.

The planner is replaced where a test wants a certain plan: its own tests are in tests/plan. Plans are made of real
forecasts of a saved step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oomproof import forecasting
from oomproof.cli.fit import with_value
from oomproof.errors import InputError
from oomproof.memory.devices import Device
from oomproof.plan.plan import Change, Plan, Point
from oomproof.sources.job import Job, Knob, Option

Run = Callable[..., Any]
Say = Callable[[str, float], None]


class Jotter:
    """A job that can be written: what was asked of it, and a file that shows it."""

    name = "hand-made"
    settings = ()

    def __init__(self, folder: Path) -> None:
        self.place = folder / "own.json"

    def write(self, settings: dict[str, Any], target: Path | None) -> str:
        path = target or self.place
        path.write_text(json.dumps(settings))
        return f"wrote {path}; paste this:\nimport oomproof\n"


class Asked:
    """What the planner was asked, and the plan it is to give."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.plan: Callable[[Plan], Plan] = lambda plan: plan
        self.calls: list[dict[str, Any]] = []

    def fit(
        self,
        job: Job,
        on: Device,
        *,
        keep: str,
        allow: Sequence[str],
        progress: Callable[[str, float], None],
        **given: Any,
    ) -> Plan:
        self.calls.append({"job": job, "on": on, "keep": keep, "allow": allow, **given})
        progress("tracing the job as it is", 0.1)
        progress("looking at batch 4 x 4", 0.6)
        after = forecasting.check(self.step, on)
        change = Change("batch", 16, "4 x 4", "identical", "mean over images", 1 << 30, 1.05, {"batch": 4})
        points = (Point(9 << 30, 1.0, "identical", ""), Point(2 << 30, 1.05, "identical", "batch 4 x 4", chosen=True))
        before = replace(after, settings={"batch": 16, "accumulate": 1})
        settings = {"batch": 4, "accumulate": 4}
        return self.plan(Plan(job.name, on, settings, (change,), before, after, 1.05, frontier=points, traces=3))


@pytest.fixture
def asked(step: str, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(step)
    monkeypatch.setattr("oomproof.planning.fit", asked.fit)
    return asked


@pytest.fixture
def jotter(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jotter:
    """The job ``jot`` beside the real ones."""
    from oomproof import sources

    jotter, real = Jotter(tmp_path), sources.open_job
    monkeypatch.setattr("oomproof.sources.open_job", lambda text: jotter if text == "jot" else real(text))
    return jotter


def test_fits(run: Run, asked: Asked, step: str) -> None:
    code, out, err = run("fit", step, "--on", "8GiB")
    assert code == 0
    assert out.splitlines()[0].startswith("Verdict  fits 8.00 GiB with 1 change: ")
    assert "batch 16 -> 4 x 4" in out
    assert err.splitlines() == [f"opening {step}", "tracing the job as it is", "looking at batch 4 x 4"]


def test_what_is_asked(run: Run, asked: Asked, step: str) -> None:
    run("fit", step, "--on", "T4", "--batch", "8", "--image-size", "640x640", "--set", "precision=bf16", "-q")
    run("fit", step, "--on", "T4", "--keep", "identical", "--allow", "a, b", "--allow", "c", "-q")
    first, second = asked.calls
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
    from oomproof.run.settings_file import write_settings

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
    monkeypatch.setattr("oomproof.planning.knobs", lambda job, on, **settings: (knob,))
    code, out, _ = run("fit", step, "--on", "8GiB", "--knobs", "-q")
    assert code == 0
    assert "16 -> 8 x 2" in out
    assert json.loads(run("fit", step, "--on", "8GiB", "--knobs", "--json").out)[0]["name"] == "batch"


class TestRefused:
    """One line on stderr, exit 1, nothing on stdout, and before the search has begun."""

    @pytest.fixture
    def refused(self, run: Run, asked: Asked, tmp_path: Path) -> Callable[..., str]:
        def refused(*arguments: str) -> str:
            before = sorted(tmp_path.rglob("*"))
            code, out, err = run("fit", *arguments, "--quiet")
            assert (code, out, err.count("\n")) == (1, "", 1), err
            assert "internal error" not in err
            assert not asked.calls
            assert sorted(tmp_path.rglob("*")) == before
            return str(err)

        return refused

    def test_promises(self, refused: Callable[..., str], step: str) -> None:
        assert "--keep must be identical or equivalent; got 'exact'" in refused(step, "--on", "8GiB", "--keep", "exact")
        assert "--allow names what" in refused(step, "--on", "8GiB", "--keep", "different")

    @pytest.mark.parametrize("names", ["", "a,,b", ","])
    def test_names(self, refused: Callable[..., str], step: str, names: str) -> None:
        assert "--allow wants names" in refused(step, "--on", "8GiB", "--allow", names)

    def test_settings_named_like_an_argument(self, refused: Callable[..., str], step: str) -> None:
        assert "--set keep=...: oomproof.fit has an argument of that name" in refused(step, "--set", "keep=3")

    def test_devices_and_jobs(self, refused: Callable[..., str], step: str) -> None:
        assert "RTX 3061" in refused(step, "--on", "RTX 3061")
        assert "no-such.timeline" in refused("no-such.timeline", "--on", "8GiB")
        assert "JOB" in refused("--on", "8GiB").upper()
        assert "JOB" in refused("--on", "8GiB", "--write").upper()

    def test_a_saved_step_cannot_be_written(self, refused: Callable[..., str], step: str) -> None:
        assert "saved step" in refused(step, "--on", "8GiB", "--write")
        assert "saved step" in refused(step, "--on", "8GiB", "--write", "somewhere.json")

    def test_targets(self, refused: Callable[..., str], jotter: Jotter, tmp_path: Path) -> None:
        on = ("--on", "8GiB", "--write")
        assert "is a folder" in refused("jot", *on, str(tmp_path))
        assert "there is no folder" in refused("jot", *on, str(tmp_path / "no" / "file.json"))
        jotter.place = tmp_path / "gone" / "file.json"
        assert "there is no folder" in refused("jot", *on)

    def test_read_only_targets(self, refused: Callable[..., str], jotter: Jotter, tmp_path: Path) -> None:
        on = ("--on", "8GiB", "--write")
        jotter.place.write_text("{}")
        jotter.place.chmod(0o444)
        assert "read-only" in refused("jot", *on)
        assert "read-only" in refused("jot", *on, str(jotter.place))
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o555)
        assert "read-only" in refused("jot", *on, str(locked / "new.json"))

    def test_settings_files(self, refused: Callable[..., str], step: str, tmp_path: Path) -> None:
        assert "no-such.json" in refused(step, "--on", "8GiB", "--from", "no-such.json")
        (tmp_path / "other.json").write_text("[]")
        assert "other.json" in refused(step, "--on", "8GiB", "--from", str(tmp_path / "other.json"))


def test_what_the_planner_refuses_is_one_line(run: Run, asked: Asked, step: str) -> None:
    def refuse(plan: Plan) -> Plan:
        raise InputError("--keep identical and --allow image_size contradict each other")

    asked.plan = refuse
    code, out, err = run("fit", step, "--on", "8GiB", "--keep", "identical", "--allow", "image_size", "-q")
    assert (code, out) == (1, "")
    assert err == "oomproof: --keep identical and --allow image_size contradict each other\n"


def test_a_bare_option_before_another() -> None:
    assert with_value(["--write", "--on", "8GiB", "j"], "--write") == ["--write=", "--on", "8GiB", "j"]
    assert with_value(["j", "--write"], "--write") == ["j", "--write="]
    assert with_value(["j", "--write=x"], "--write") == ["j", "--write=x"]
    assert with_value([], "--write") == []


JOB = """
import torch
from torch import nn
from oomproof import TorchJob

def job(batch: int = 96, image_size: int = 128):
    def model():
        layers = [layer for _ in range(6) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())]
        ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *layers, *ends)

    return TorchJob(
        model=model,
        batch=lambda: (torch.rand(batch, 3, image_size, image_size), torch.zeros(batch, dtype=torch.long)),
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
    )
"""


@pytest.mark.slow
class TestForReal:
    """With the planner and a job of one's own."""

    @pytest.fixture
    def train(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "train.py").write_text(JOB)

    def test_what_is_written_fits_when_checked_again(self, run: Run, train: None, tmp_path: Path) -> None:
        code, out, _ = run("fit", "train.py:job", "--on", "1.2GiB", "--write", "--json")
        plan = json.loads(out)
        assert (code, plan["fits"], plan["before"]["fits"]) == (0, True, False)
        assert plan["settings"]["batch"] * plan["settings"]["accumulate"] == 96
        assert Path(plan["written"]).resolve() == (tmp_path / "train.oomproof.json").resolve()
        code, out, _ = run("check", "train.py:job", "--on", "1.2GiB", "--from", plan["written"], "--json")
        assert code == 0
        assert json.loads(out)["device"] == plan["after"]["device"]

    def test_identical_changes_only(self, run: Run, train: None) -> None:
        code, out, _ = run("fit", "train.py:job", "--on", "1.2GiB", "--keep", "identical", "--json")
        plan = json.loads(out)
        assert code in (0, 2)
        assert plan["promise"] == "identical"
        assert plan["settings"]["precision"] == "fp32"

    def test_nothing_fits(self, run: Run, train: None) -> None:
        code, out, _ = run("fit", "train.py:job", "--on", "920MiB", "--keep", "identical", "-q")
        assert code == 2
        assert out.startswith("Verdict  does not fit 0.90 GiB")
        assert "--keep equivalent" in out.partition("it would take")[2]

    def test_a_budget_below_what_any_setting_needs(self, run: Run, train: None) -> None:
        code, out, err = run("fit", "train.py:job", "--on", "100MiB", "-q")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "0.10 GiB" in err

    def test_words_that_contradict_or_are_unknown(self, run: Run, train: None) -> None:
        on = ("fit", "train.py:job", "--on", "1.2GiB", "-q")
        for words in (("--keep", "identical", "--allow", "image_size"), ("--allow", "no_such_knob")):
            code, out, err = run(*on, *words)
            assert (code, out, err.count("\n")) == (1, "", 1)
            assert words[-1] in err

    def test_knobs(self, run: Run, train: None) -> None:
        out = run("fit", "train.py:job", "--on", "1.2GiB", "--knobs", "-q").out
        assert "96 -> 48 x 2" in out
        assert "image_size" in out
