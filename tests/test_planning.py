"""``oomproof.fit`` from a job to a plan: what holds for every plan, and what users may ask of it."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oomproof
from oomproof.api.fit import list_knobs
from oomproof.cli import main
from oomproof.errors import InputError
from oomproof.memory.cards.devices import find_device
from oomproof.memory.files import timeline_file
from oomproof.plan.plan import Plan
from oomproof.sources import open_job
from oomproof.sources.job import PROMISES, TraceRequest
from oomproof.sources.settings import resolve
from thorough import THOROUGH

sys.path.insert(0, str(Path(__file__).parent / "plan"))
from small_jobs import opened
from tight_cards import card, fit


def effective(settings: Any) -> int:
    return int(settings["batch"] * settings["accumulate"])


def holds(plan: Plan, job: str, images: int, **given: Any) -> None:
    """What every plan must keep to."""
    assert effective(plan.settings) == images
    forecast = oomproof.check(opened(job), on=plan.device, **plan.settings)
    assert (plan.after.on_device, plan.after.reserved) == (forecast.on_device, forecast.reserved)
    assert plan.before.on_device == oomproof.check(opened(job), on=plan.device, **given).on_device

    asked = resolve(opened(job), given)
    turned = {name: value for change in plan.changes for name, value in change.settings.items()}
    assert {**asked, **turned} == plan.settings  # every change is told, and nothing else is changed
    assert all(asked[name] != value for change in plan.changes for name, value in [next(iter(change.settings.items()))])

    freed = plan.before.on_device.expected - plan.after.on_device.expected
    assert all(change.frees >= 0 for change in plan.changes)
    assert sum(change.frees for change in plan.changes) == max(0, freed) * bool(plan.changes)
    assert math.prod(change.time for change in plan.changes) == pytest.approx(plan.time, rel=1e-9)
    promises = [PROMISES.index(change.promise) for change in plan.changes]
    assert promises == sorted(promises)

    if plan.frontier:
        memory, time = [point.device for point in plan.frontier], [point.time for point in plan.frontier]
        assert memory == sorted(set(memory)) and time == sorted(set(time), reverse=True)
        [chosen] = [point for point in plan.frontier if point.chosen]
        assert (chosen.device, chosen.time) == (plan.after.on_device.high, plan.time)
    assert all(each.reason and each.changes for each in plan.alternatives)
    for each in plan.alternatives:
        if "more time" in each.reason:  # than the plan, as the times beside it say
            assert f"takes {100 * (each.time / plan.time - 1):.0f} % more time per image than this plan" in each.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "keep", "part"),
    [
        ("images", "identical", 0.8),
        ("images", "identical", 0.35),
        ("images", "equivalent", 0.6),
        ("images", "equivalent", 0.35),
        ("normed", "identical", 0.55),  # nothing but recomputing: micro-batches are no longer identical
        ("normed", "equivalent", 0.35),
    ],
)
def test_plans(job: str, keep: str, part: float) -> None:
    plan = fit(job, part, keep=keep)
    assert plan.fits and plan.changes and not plan.needs
    assert PROMISES.index(plan.promise) <= PROMISES.index(keep)
    holds(plan, job, 16)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"batch": 7},
        pytest.param({"batch": 6, "accumulate": 2}, marks=THOROUGH),
        pytest.param({"batch": 2, "accumulate": 3, "side": 256}, marks=THOROUGH),
        {"batch": 1, "side": 384},
        {"batch": 1, "accumulate": 4, "side": 384},
        pytest.param({"batch": 8, "zero_grad": "before_backward"}, marks=THOROUGH),
        {"batch": 8, "precision": "fp16"},
        pytest.param({"batch": 8, "ema": True}, marks=THOROUGH),
        pytest.param({"batch": 8, "checkpoint": "nonreentrant"}, marks=THOROUGH),
        {"batch": 8, "ddp": True},
        pytest.param({"batch": 8, "cudnn_benchmark": True}, marks=THOROUGH),
    ],
    ids=str,
)
def test_jobs_of_every_kind(given: dict[str, Any]) -> None:
    plan = fit("images", 0.6, settings=given)
    assert plan.fits and plan.changes
    holds(plan, "images", given["batch"] * given.get("accumulate", 1), **given)


def test_what_fits_is_left_alone() -> None:
    plan = fit("images", 1.05)
    assert plan.fits and plan.changes == () and plan.time == 1
    assert plan.settings == resolve(opened("images"), {})
    assert plan.after == plan.before


def test_an_accumulated_job_of_two_images_is_not_taken_for_a_plain_one() -> None:
    given = {"batch": 2, "accumulate": 2, "width": 256, "side": 32, "blocks": 4}
    plan = fit("images", 1.01, settings=given)
    holds(plan, "images", 4, **given)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_body_runs_in_chunks_where_the_batch_must_stay() -> None:
    plan = fit("images", 0.3, leave=("batch", "precision"))
    assert plan.fits and plan.settings["batch"] == 16
    assert ":" in plan.settings["checkpoint"]
    holds(plan, "images", 16)


@pytest.mark.parametrize(
    "leave", [("checkpoint", "precision"), ("batch", "checkpoint"), ("batch", "precision")], ids=str
)
def test_what_is_left_stays(leave: tuple[str, ...]) -> None:
    plan = fit("images", 0.7, leave=leave)
    assert plan.fits
    assert not {change.knob for change in plan.changes} & set(leave)


# -- nothing fits ----------------------------------------------------------------------------------------------

ONLY = ("batch", "checkpoint", "optimizer_state", "update", "channels_last", "expandable_segments", "optimizer")


@pytest.mark.slow
def test_what_would_have_to_be_allowed_really_helps() -> None:
    plan = fit("images", 0.5, leave=(*ONLY, "precision"))
    assert not plan.fits and plan.needs
    names = [need.split()[1].rstrip(":") for need in plan.needs if need.startswith("--allow")]
    assert "side" in names
    for name in names:
        allowed = fit("images", 0.5, leave=(*ONLY, "precision"), allow=(name,))
        assert allowed.fits, name
        assert allowed.promise == "different"
        assert [change.knob for change in allowed.changes if change.promise == "different"] == [name]


def test_what_equivalence_would_do() -> None:
    plan = fit("images", 0.7, keep="identical", leave=("batch", "checkpoint"))
    assert not plan.fits
    [need] = plan.needs
    assert need.startswith("--keep equivalent: precision bf16")
    assert fit("images", 0.7, leave=("batch", "checkpoint")).fits


@pytest.mark.slow
def test_needs_under_identical_do_not_contradict_themselves() -> None:
    plan = fit("images", 0.3, keep="identical", leave=ONLY)
    assert not plan.fits and plan.needs
    assert all("--keep equivalent --allow" in need or "no knob" in need for need in plan.needs)


@pytest.mark.slow
def test_a_miss_is_the_nearest() -> None:
    plan = fit("images", 0.02, leave=("side", "optimizer", "channels_last"))
    assert not plan.fits and plan.needs
    assert plan.after.on_device.high < 0.5 * plan.before.on_device.high or plan.after.shortage_at_worst
    assert effective(plan.settings) == 16


# -- words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"keep": "different"}, "keep must be one of"),
        ({"keep": "identical", "allow": ("side",)}, "contradict"),
        ({"allow": ("side",), "leave": ("side",)}, "both"),
        ({"allow": ("sied",)}, "did you mean side"),
        ({"leave": ("no_such_knob",)}, "no knob 'no_such_knob'"),
        ({"no_such_setting": 1}, "no_such_setting"),
    ],
    ids=str,
)
def test_words_that_make_no_sense(words: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        oomproof.fit(opened("images"), on="8GiB", batch=2, **words)
    assert "\n" not in str(raised.value)


def test_a_budget_below_the_parameters() -> None:
    device = card("wide", 0.1)
    with pytest.raises(InputError, match="less than the job's parameters alone") as raised:
        oomproof.fit(opened("wide"), on=device)
    assert "\n" not in str(raised.value)


def test_a_device_with_no_room_at_all_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """It is an answer, not a mistake: the exit code is that of any plan that does not fit."""
    command = ["fit", "torchvision:resnet18", "--batch", "1", "--image-size", "64x64", "--on", "300MiB", "-q"]
    assert main(command) == 2
    assert "nothing fits 0.29 GiB, whatever the settings: the CUDA context takes up to" in capsys.readouterr().err


def test_knobs_are_named_with_their_promises() -> None:
    found = {knob.name: knob for knob in list_knobs(opened("normed"), on="RTX 2080 Ti")}
    assert found["batch"].promise == "equivalent" and found["side"].promise == "different"
    assert [option.value for option in found["precision"].options] == ["fp32", "fp16"]
    assert "expandable_segments" in found


# -- Ctrl-C ----------------------------------------------------------------------------------------------------


class Stop:
    """Ctrl-C at the given report of progress."""

    def __init__(self, at: int) -> None:
        self.at, self.said = at, list[str]()

    def __call__(self, text: str, done: float) -> None:
        self.said.append(text)
        assert 0 <= done <= 1
        if len(self.said) > self.at:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_stopping_gives_the_best_so_far_or_nothing() -> None:
    whole = Stop(1000)
    full = fit("images", 0.5, progress=whole)
    outcomes = []
    for at in range(len(whole.said)):
        try:
            plan = fit("images", 0.5, progress=Stop(at))
        except KeyboardInterrupt:
            outcomes.append("nothing")
            continue
        assert plan.interrupted
        holds(plan, "images", 16)
        outcomes.append("plan")
    assert outcomes[0] == "nothing" and outcomes[-1] == "plan"
    assert outcomes == sorted(outcomes)
    assert not full.interrupted


# -- jobs that know less ---------------------------------------------------------------------------------------


def test_a_job_with_a_step_of_its_own() -> None:
    plan = fit("own_step", 0.9)
    assert {change.knob for change in plan.changes} <= {"expandable_segments", "batch", "side"}
    assert plan.after.on_device == oomproof.check(opened("own_step"), on=plan.device, **plan.settings).on_device


def test_a_job_without_a_batch_parameter() -> None:
    plan = fit("unnamed", 0.6)
    assert plan.fits
    assert plan.settings["count"] == 16 and plan.settings["accumulate"] == 1
    assert {change.knob for change in plan.changes} & {"checkpoint", "precision"}


def test_a_saved_step(tmp_path: Path) -> None:
    job = opened("images")
    timeline_file.save(job.trace(TraceRequest(resolve(job, {}))), tmp_path / "a.timeline")
    saved = open_job(str(tmp_path / "a.timeline"))
    plan = oomproof.fit(saved, on=card("images", 0.5))
    assert not plan.fits
    assert {change.knob for change in plan.changes} <= {"expandable_segments"}
    assert math.isfinite(plan.time) and plan.needs[0].startswith("no knob that may be turned is enough")
    assert oomproof.fit(saved, on="24GiB").fits


def test_a_saved_step_that_only_the_run_around_it_makes_fit(tmp_path: Path) -> None:
    job = opened("wide")
    timeline_file.save(job.trace(TraceRequest(resolve(job, {}))), tmp_path / "a.timeline")
    saved = open_job(str(tmp_path / "a.timeline"))
    view = oomproof.check(saved, on="80GiB", ddp=True, gradient_as_bucket_view=True)
    device = replace(find_device("8GiB"), total=view.on_device.high + (64 << 20))
    plan = oomproof.fit(saved, on=device, ddp=True)
    assert plan.fits and plan.needs == ()
    [change] = plan.changes
    assert change.knob == "gradient_as_bucket_view" and change.frees > 0.1 * plan.before.on_device.expected
    assert change.frees == plan.before.on_device.expected - plan.after.on_device.expected


def test_thirteen_images_under_batchnorm_are_cut_unevenly_and_never_one_by_one() -> None:
    plan = fit("normed", 0.5, settings={"batch": 13}, leave=("checkpoint", "precision", "channels_last"))
    size, count = plan.settings["batch"], plan.settings["accumulate"]
    assert plan.fits
    assert 1 < size < 13
    assert count == math.ceil(13 / size)
    assert plan.promise == "equivalent"
