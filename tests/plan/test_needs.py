"""What would have to be allowed: every word of it is tried."""

from __future__ import annotations

from typing import Any

import pytest
from tight_cards import fit

from oomproof.errors import JobError
from oomproof.plan.confirmed import Confirmed
from oomproof.plan.estimates.way import Way
from oomproof.plan.remarks import needs

pytestmark = pytest.mark.slow

KEPT = ("checkpoint", "optimizer_state", "update", "channels_last", "optimizer", "precision")


def test_the_thriftiest_way_is_told_where_no_knob_is_enough() -> None:
    plan = fit("images", 0.06, leave=(*KEPT, "batch", "side"))
    assert not plan.fits
    [need] = plan.needs
    assert need.startswith("no knob that may be turned is enough: it needs about ")
    least = float(need.split("about ")[1].split()[0]) * 2**30
    assert least == pytest.approx(plan.after.on_device.high, rel=0.2)
    assert least > plan.device.budget


def test_what_is_left_alone_is_not_asked_for() -> None:
    plan = fit("images", 0.3, leave=(*KEPT, "batch"))
    assert not plan.fits
    assert plan.needs and all("side" in need for need in plan.needs)
    assert fit("images", 0.3, leave=(*KEPT, "batch"), allow=("side",)).fits
    assert not any("side" in need for need in fit("images", 0.3, leave=(*KEPT, "batch", "side")).needs)


def test_what_a_full_trace_finds_too_large_is_not_offered() -> None:
    """By estimate 64 pixels are enough for a quarter of the card, by their trace they are not."""
    assert not fit("images", 0.25, leave=(*KEPT, "batch"), allow=("side",)).fits
    plan = fit("images", 0.25, leave=(*KEPT, "batch"))
    [need] = plan.needs
    assert need.startswith("no knob that may be turned is enough")
    traced = [each.device for each in plan.attempts if each.device is not None]
    assert float(need.split("about ")[1].split()[0]) * 2**30 <= min(traced) + 0.01 * 2**30, "the report tells less"


def test_what_the_job_cannot_run_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(way: Way, *_: Any) -> Confirmed:
        raise JobError(f"{way.words} cannot run")

    monkeypatch.setattr(needs, "confirm", refuse)
    plan = fit("images", 0.3, leave=(*KEPT, "batch"))
    assert plan.needs[0].startswith("no knob that may be turned is enough")
    assert [each.outcome for each in plan.attempts[-1:]] == ["cannot run"]


def test_equivalence_comes_before_another_training() -> None:
    kept = tuple(name for name in KEPT if name != "precision")
    plan = fit("normed", 0.35, keep="identical", leave=kept)
    assert not plan.fits
    [need] = plan.needs
    words, would = need.split(": ")
    assert words == "--keep equivalent" and would.endswith("would fit")
    allowed = fit("normed", 0.35, keep="equivalent", leave=kept)
    assert allowed.fits and allowed.promise == "equivalent"
