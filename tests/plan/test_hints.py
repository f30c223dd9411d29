"""Hints of ``check``: every figure is held against a check with that very change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_jobs import opened
from tight_cards import card

import oomproof
from oomproof.api import check as checking
from oomproof.memory.files import timeline_file
from oomproof.memory.forecast import Hint
from oomproof.memory.timeline import Timeline
from oomproof.plan.hints import WORTH_SAYING
from oomproof.report.advice import next_steps
from oomproof.sources import open_job
from oomproof.sources.job import Job, TraceRequest
from oomproof.sources.settings import resolve

LARGE = {"images": {"batch": 64}, "wide": {}}


def hints(name: str, part: float) -> dict[str, Hint]:
    found = oomproof.check(opened(name), on=card(name, part, **LARGE[name]), **LARGE[name]).hints
    return {hint.knob: hint for hint in found}


@pytest.mark.parametrize("name", ["images", "wide"])
def test_what_is_said_to_be_saved_is_saved(name: str) -> None:
    device = card(name, 0.5, **LARGE[name])
    now = oomproof.check(opened(name), on=device, **LARGE[name])
    sure = [hint for hint in now.hints if hint.saves is not None and hint.settings]
    assert len(sure) >= 3
    for hint in sure:
        given = {**LARGE[name], **hint.settings}
        then = oomproof.check(opened(name), on=replace(device, total=80 << 30), **given)
        whole = oomproof.check(opened(name), on=replace(device, total=80 << 30), **LARGE[name])
        saved = whole.on_device.high - then.on_device.high
        assert hint.saves == pytest.approx(saved, rel=0.2, abs=WORTH_SAYING), hint


def test_the_surest_come_first() -> None:
    found = list(hints("images", 0.6).values())
    assert found[0].knob == "batch"  # enough by itself, and keeps the training
    assert [hint.knob for hint in found if hint.saves is None] == []
    assert found[-1].knob == "precision"  # traced once more for its figure
    assert {hint.knob: hint.promise for hint in found}["side"] == "different"


def test_a_batch_is_cut_no_further_than_it_must() -> None:
    large, small = (hints("images", part)["batch"].settings["batch"] for part in (0.6, 0.3))
    assert 64 > large > small


def test_what_is_computed_again_is_a_bound() -> None:
    hint = hints("images", 0.6)["checkpoint"]
    assert hint.at_most and hint.saves and not hint.settings
    plan = oomproof.fit(
        opened("images"), on=card("images", 0.6, **LARGE["images"]), leave=("batch", "precision"), **LARGE["images"]
    )
    [change] = [change for change in plan.changes if change.knob == "checkpoint"]
    assert change.frees <= hint.saves


def test_a_step_that_fits_has_none() -> None:
    assert oomproof.check(opened("images"), on="24GiB").hints == ()


def test_a_saved_step_has_only_those_of_the_run(tmp_path: Path) -> None:
    job = opened("images")
    timeline_file.save(job.trace(TraceRequest(resolve(job, LARGE["images"]))), tmp_path / "a.timeline")
    saved = open_job(str(tmp_path / "a.timeline"))
    found = oomproof.check(saved, on=card("images", 0.6, **LARGE["images"])).hints
    assert {hint.knob for hint in found} <= {"expandable_segments"}


def test_a_compiled_step_has_hints_without_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler's step has no work to estimate from, and nor has a step that was read from a file."""
    job = opened("images")
    traced = type(job).trace

    def trace(self: Job, request: TraceRequest) -> Timeline:
        timeline_file.save(traced(self, request), tmp_path / "a.timeline")
        return timeline_file.load_timeline(tmp_path / "a.timeline")

    monkeypatch.setattr(type(job), "trace", trace)
    monkeypatch.setattr(checking, "QUICKLY_TRACED", 1)  # a compiled step is not compiled again for a figure
    forecast = oomproof.check(job, on=card("images", 0.6, **LARGE["images"]), **LARGE["images"])
    found = {hint.knob: hint for hint in forecast.hints if hint.saves is None}
    assert found["batch"].settings == {"batch": 32, "accumulate": 2}
    assert list(found) == ["batch", "precision", "side"]
    sentence, steps = next_steps(forecast, job.settings)
    assert "larger GPU" not in sentence
    unsure = [step.option for step in steps if "a check with it shows" in step.reason]
    assert unsure[0] == "--batch 32 --set accumulate=2"
