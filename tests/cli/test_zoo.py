"""``oomproof zoo``: what it lists, what it asks for each model, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import oomproof
from oomproof.errors import JobError
from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast
from oomproof.memory.settings import Settings
from oomproof.plan.plan import Change, Plan
from oomproof.sources.job import Job

Run = Callable[..., Any]
SEGMENTERS = 6
SMALL = Settings({"batch": 2, "image_size": (8, 8)}, {"batch": "batch"})


@pytest.fixture
def asked(step: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Instead of each model a saved step of 2 GiB is forecast, which is quick; what was asked is noted."""
    calls: list[tuple[str, dict[str, Any]]] = []
    real = oomproof.check

    def check(job: Job, on: Device, **given: Any) -> Forecast:
        calls.append((job.name, given))
        return replace(real(step, on), job=job.name, settings=SMALL)

    monkeypatch.setattr("oomproof.check", check)
    return calls


@pytest.fixture
def planned(step: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The planner, made to find a plan on a larger device."""
    calls: list[dict[str, Any]] = []

    def fit(job: Job, on: Device, *, progress: Callable[[str, float], None], **asked: Any) -> Plan:
        calls.append({"job": job.name, **asked})
        progress("looking", 0.5)
        before, after = (oomproof.check(job, device) for device in (on, replace(on, total=8 << 30)))
        change = Change("batch", 2, "1 x 2", "equivalent", "", 1 << 30, 1.1, {"batch": 1, "accumulate": 2})
        settings = Settings({"batch": 1, "accumulate": 2}, {"batch": "batch"})
        return Plan(job.name, on, settings, (change,), before, after, 1.1)

    monkeypatch.setattr("oomproof.fit", fit)
    return calls


def test_lists_without_a_device(run: Run) -> None:
    code, out, err = run("zoo")
    assert (code, err) == (0, "")
    assert out.index("fasterrcnn_resnet50_fpn_v2") < out.index("fcos_resnet50_fpn") < out.index("maskrcnn_resnet50_fpn")
    assert "deeplabv3_resnet101" in out


def test_filter_and_task(run: Run) -> None:
    rows = json.loads(run("zoo", "MOBILENET v3", "--task", "segmentation", "--json").out)
    assert [row["model"].partition(":")[2] for row in rows] == [
        "deeplabv3_mobilenet_v3_large",
        "lraspp_mobilenet_v3_large",
    ]
    assert all(row["fits"] is None for row in rows)


@pytest.mark.thorough
def test_every_model_is_asked_about_the_best_first(run: Run, asked: list[tuple[str, dict[str, Any]]]) -> None:
    code, out, err = run("zoo", "--task", "segmentation", "--on", "8GiB", "--batch", "3")
    assert code == 0
    assert [name for name, _ in asked][:2] == ["torchvision:deeplabv3_resnet101", "torchvision:deeplabv3_resnet50"]
    assert len(asked) == SEGMENTERS and all(given == {"batch": "3"} for _, given in asked)
    assert out.startswith(f"8.00 GiB trains {SEGMENTERS} of these {SEGMENTERS} models")
    assert err.splitlines()[0] == f"1 of {SEGMENTERS}: torchvision:deeplabv3_resnet101"


@pytest.mark.usefixtures("asked")
def test_what_does_not_fit_is_made_to(run: Run, planned: list[dict[str, Any]]) -> None:
    code, out, err = run("zoo", "lraspp", "--on", "2GiB", "--keep", "identical")
    assert code == 0
    assert planned == [{"job": "torchvision:lraspp_mobilenet_v3_large", "keep": "identical"}]
    assert "fits: batch 2 -> 1 x 2" in out
    assert "+10 %" in out
    assert "1 of 1: torchvision:lraspp_mobilenet_v3_large: looking" in err


@pytest.mark.usefixtures("asked")
def test_none_fits(run: Run, monkeypatch: pytest.MonkeyPatch, planned: list[dict[str, Any]]) -> None:
    found = oomproof.fit

    def fit(*args: Any, **kwargs: Any) -> Plan:
        plan = found(*args, **kwargs)
        return replace(plan, after=plan.before)

    monkeypatch.setattr("oomproof.fit", fit)
    code, out, _ = run("zoo", "lraspp", "--on", "2GiB", "-q")
    assert code == 2
    assert out.startswith("2.00 GiB trains none of these 1 models.")


def test_ctrl_c_shows_what_was_found(run: Run, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = oomproof.check
    seen: list[str] = []

    def check(job: Job, on: Device, **given: Any) -> Forecast:
        seen.append(job.name)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return replace(real(step, on), settings=SMALL)

    monkeypatch.setattr("oomproof.check", check)
    code, out, err = run("zoo", "--task", "segmentation", "--on", "8GiB", "-q")
    assert code == 130
    assert "deeplabv3_resnet101" in out and "deeplabv3_resnet50" in out and "fcn_resnet101" not in out
    assert err == "oomproof: interrupted\n"


@pytest.mark.usefixtures("asked")
def test_a_search_that_was_stopped_ends_the_survey(run: Run, planned: list[dict[str, Any]], monkeypatch: Any) -> None:
    found = oomproof.fit
    monkeypatch.setattr("oomproof.fit", lambda *a, **k: replace(found(*a, **k), interrupted=True))
    code, out, _ = run("zoo", "--task", "segmentation", "--on", "2GiB", "--json")
    assert code == 130
    assert len(planned) == len(json.loads(out)) == 1


@pytest.mark.thorough
def test_a_model_that_fails_does_not_stop_the_others(run: Run, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = oomproof.check

    def check(job: Job, on: Device, **given: Any) -> Forecast:
        if "fcn" in job.name:
            raise JobError("the job raised ValueError: no")
        return replace(real(step, on), settings=SMALL)

    monkeypatch.setattr("oomproof.check", check)
    code, out, _ = run("zoo", "--task", "segmentation", "--on", "8GiB", "--json")
    rows = {row["model"].partition(":")[2]: row for row in json.loads(out)}
    assert code == 0
    assert len(rows) == SEGMENTERS
    assert rows["fcn_resnet50"]["problem"] == "the job raised ValueError: no"
    assert rows["deeplabv3_resnet50"]["fits"] is True


@pytest.mark.slow
def test_a_real_model(run: Run) -> None:
    code, out, err = run("zoo", "lraspp", "--on", "8GiB", "--json")
    (row,) = json.loads(out)
    assert (code, err) == (0, "")
    assert row["fits"] is True
    assert (row["settings"]["batch"], row["settings"]["image_size"]) == (4, [480, 480])
    assert 1 << 30 < row["device"]["expected"] < row["budget"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "no model of the zoo matches 'nonsense'"),
        (["--task", "classification"], "--task must be one of all, detection, segmentation; got 'classification'"),
        (["--batch", "2"], "say which one with --on"),
        (["--keep", "different", "--on", "8GiB"], "--keep must be identical or equivalent"),
        (["--on", "voodoo"], "voodoo"),
        (["lraspp", "--on", "8GiB", "--batch", "0"], "batch must be at least 1; got 0"),
        (["lraspp", "--on", "8GiB", "--batch", "many"], "batch must be a number; got 'many'"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: list[str], said: str) -> None:
    code, out, err = run("zoo", *arguments, "-q")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err
