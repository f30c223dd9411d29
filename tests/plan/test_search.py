"""The search against trying everything: every combination traced in full."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from small_jobs import opened
from tight_cards import card, fit

import oomproof
from oomproof.errors import CannotDo, InputError, JobError, OomproofError
from oomproof.memory.cards.devices import Device, find_device
from oomproof.memory.timeline import Timeline
from oomproof.plan import first_trace as first
from oomproof.plan import search, selection
from oomproof.plan.confirmed import Confirmed, confirm
from oomproof.plan.estimates.room import at_ease
from oomproof.plan.estimates.way import Way
from oomproof.plan.first_trace import first_trace, small_settings
from oomproof.plan.plan import Attempt, Point
from oomproof.plan.problem import Problem
from oomproof.plan.remarks.figures import Figures
from oomproof.plan.remarks.points import leave_out_beaten
from oomproof.plan.search import Search
from oomproof.plan.tracing import Tracing
from oomproof.plan.turned_knobs import Turned, describe_turned
from oomproof.sources import open_job
from oomproof.sources.job import Job, Knob, Option, Settings, TraceRequest
from oomproof.sources.run_knobs import all_knobs
from oomproof.sources.settings import resolve

SMALL: dict[str, Any] = {"batch": 8, "width": 16, "blocks": 2}
LEFT = ("checkpoint", "channels_last", "optimizer", "width", "side", "blocks", "expandable_segments")


def searching(name: str, device: Device, **given: Any) -> Search:
    """A search as ``fit`` starts it, with the knobs that are not left; it has traced the job as it is."""
    found = starting(name, device, **given)
    found.begin()
    return found


def starting(name: str, device: Device, left: tuple[str, ...] = LEFT, **given: Any) -> Search:
    job = opened(name)
    settings = resolve(job, given)
    tracing = Tracing(job, device, lambda text, done: None)
    facts = first_trace(tracing, settings).about
    knobs = selection.select_knobs(all_knobs(job, settings, facts, device), "equivalent", (), left)
    return Search(Problem(job, device, settings, knobs), tracing)


def estimate(found: Search, *turned: Turned) -> Way:
    found.estimates = found.trace_each([((knob, option),) for knob, option in turned if knob.role == "precision"])
    way = found.estimates.estimate(turned)
    assert way is not None
    return way


def tried(found: Search, *names: str) -> list[Confirmed]:
    """Every combination of these knobs, traced in full."""
    knobs = [found.problem.by_name[name] for name in names]
    ways = (estimate(found, *zip(knobs, options, strict=True)) for options in _choices(knobs))
    return [confirm(way, found.estimates, found.tracing) for way in ways]


def _choices(knobs: list[Knob]) -> Any:
    return itertools.product(*(knob.options for knob in knobs))


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.75, 0.5, 0.3])
def test_the_answer_is_as_good_as_the_best_of_all(part: float) -> None:
    found = searching("images", card("images", part, **SMALL), **SMALL)
    every = tried(found, "batch", "precision", "optimizer_state")
    assert len(every) == 4 * 2 * 3
    fitting = [way.price for way in every if at_ease(way.forecast)]
    again = searching("images", card("images", part, **SMALL), **SMALL)
    again.run()
    assert again.best is not None and fitting
    assert again.best.price <= 1.05 * min(fitting)


@pytest.mark.slow
def test_where_weights_weigh_the_state_goes() -> None:
    found = searching("wide", card("wide", 0.62))
    found.run()
    assert found.best is not None
    every = tried(searching("wide", card("wide", 0.62)), "optimizer_state", "update")
    fitting = [way.price for way in every if at_ease(way.forecast)]
    assert fitting and found.best.price <= 1.05 * min(fitting)
    assert found.best.settings["optimizer_state"] != "device"


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"precision": "fp16"}, {"ema": True}], ids=str)
def test_estimates_are_near_what_is_confirmed(given: dict[str, Any]) -> None:
    found = searching("images", card("images", 0.6, **SMALL, **given), **SMALL, **given)
    for way in tried(found, "batch"):
        assert way.way.peak == pytest.approx(way.peak, rel=0.03)
        assert way.way.seconds == pytest.approx(way.seconds, rel=0.05)


@pytest.mark.thorough
@pytest.mark.slow
def test_more_room_is_never_worse() -> None:
    times = [fit("images", part, settings=SMALL, leave=("precision",)).time for part in (0.9, 0.6, 0.4)]
    assert times == sorted(times)


def test_loss_modules_and_modules_with_counters_are_not_chosen() -> None:
    plan = fit("counting", 0.75, leave=("batch", "precision"))
    assert plan.fits  # training refuses to compute these again, so a plan that names them would not run
    modules = plan.settings["checkpoint"].replace(":", ",").split(",")
    assert "none" not in modules
    assert {"CrossEntropyLoss", "1", "2", "3"}.isdisjoint(modules)


@pytest.mark.thorough
def test_a_step_that_is_slow_to_trace_is_never_answered_by_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first, "SOME", 0)
    monkeypatch.setattr(first, "FEW_ASKED", -1)
    monkeypatch.setattr(search, "MOST_ASKED", -1)
    for part in (1.1, 0.9):
        found = starting("asking", card("asking", part))
        forecast = found.begin()
        traced = found.tracing.forecast(found.tracing.trace(found.problem.settings, "")[0], found.problem.settings)
        if forecast.fits:
            assert forecast.on_device == traced.on_device
        else:
            assert forecast.on_device.expected == pytest.approx(traced.on_device.expected, rel=0.05)
            assert {each.images for each in found.estimates.base} == {2}


@pytest.mark.parametrize("part, images", [(0.75, {8}), (0.3, {2, 8})])
def test_few_images_are_traced_only_where_the_best_way_has_few(part: float, images: set[int]) -> None:
    leave = (*LEFT, "precision", "optimizer_state", "gradients", "update", "zero_grad")
    found = starting("images", card("images", part, **SMALL), leave, **SMALL)
    found.begin()
    assert {each.images for each in found.estimates.base} == {8}
    found.run()
    assert found.best is not None and found.best.forecast.fits
    assert {each.images for each in found.estimates.base} == images


@pytest.mark.thorough
def test_a_step_with_many_images_that_asks_for_values_begins_small(monkeypatch: pytest.MonkeyPatch) -> None:
    job = opened("choosing")
    settings = resolve(job, {})
    for few_asked, images in ((30, 12), (11, 2)):
        monkeypatch.setattr(first, "FEW_ASKED", few_asked)
        step = first_trace(Tracing(job, find_device("8GiB"), lambda text, done: None), settings)
        assert step.about.settings["batch"] == images


def test_detectors_with_many_images_begin_small() -> None:
    class Seen(Tracing):
        def trace(self, settings: Any, doing: str, *, patience: int | None = None) -> Any:
            raise InputError(f"{settings['batch']} {patience}")

    for batch, small in ((8, "8 None"), (9, "2 None")):
        job = open_job("torchvision:fasterrcnn_resnet50_fpn")
        with pytest.raises(InputError, match=small):
            first_trace(Seen(job, find_device("8GiB"), lambda text, done: None), resolve(job, {"batch": batch}))


def test_small_settings() -> None:
    def small(values: dict[str, int]) -> dict[str, int]:
        return dict(small_settings(Settings(values, {"batch": "batch"})))

    assert small({"batch": 16, "accumulate": 4}) == {"batch": 2, "accumulate": 1}
    assert small({"batch": 1, "accumulate": 4}) == {"batch": 1, "accumulate": 1}
    assert small({"batch": 16}) == {"batch": 16}
    assert small({"accumulate": 4}) == {"accumulate": 4}


def test_words_for_ways() -> None:
    size = Knob("image_size", (Option((800, 1333), {}), Option((640, 1066), {})), "different", "")
    batch = Knob("batch", (Option(8, {}), Option("4 x 2", {})), "identical", "")
    assert describe_turned(()) == "no change"
    assert describe_turned(((size, size.options[1]), (batch, batch.options[1]))) == "image_size 640x1066, batch 4 x 2"


# -- what is told beside ---------------------------------------------------------------------------------------


def point(device: int, time: float, chosen: bool = False) -> Point:
    return Point(device, time, "identical", "", chosen)


def test_a_frontier_has_the_chosen_point_and_nothing_that_is_beaten() -> None:
    here = point(1000, 2.0, chosen=True)
    others = [point(500, 4.0), point(600, 4.5), point(800, 1.5), point(1200, 1.5), point(1300, 2.5), point(2000, 1.0)]
    kept = leave_out_beaten([here, *others])
    assert [(each.device, each.time) for each in kept] == [(500, 4.0), (1000, 2.0), (1200, 1.5), (2000, 1.0)]


def test_of_two_points_that_are_all_but_one_the_first_stays() -> None:
    kept = leave_out_beaten([point(1000, 2.0, chosen=True), point(2000, 1.0), point(2001, 0.999)])
    assert [each.device for each in kept] == [1000, 2000]


def test_a_chosen_point_alone() -> None:
    here = point(1000, 2.0, chosen=True)
    assert leave_out_beaten([here, point(1001, 2.001), point(999, 1.999)]) == (here,)


def test_a_way_has_one_set_of_figures_however_often_it_is_named() -> None:
    """That of a full trace before any estimate; of two estimates the first."""
    found = searching("images", find_device("RTX 3060"), **SMALL)
    precision = found.problem.by_name["precision"]
    way, other = estimate(found, (precision, precision.options[-1])), found.estimates.as_it_is()
    traced = Attempt(way.words, "full trace", "fits", "", device=1000, time=0.5)
    figures = Figures(found.estimates, [Attempt(other.words, "full trace", "cannot run", ""), traced])
    assert figures.find(way) == (1000, 0.5)
    first = figures.find(other)
    assert first == (found.estimates.room.on_device(other.peak), 1.0)
    assert figures.find(replace(other, seconds=2 * other.seconds)) == first
    assert not figures.has_missed(way) and not figures.has_missed(other)
    assert Figures(found.estimates, [replace(traced, outcome="at risk")]).has_missed(way)


@pytest.mark.slow
def test_a_plan_tells_one_set_of_figures() -> None:
    plan = fit("images", 0.3)
    told = [(each.changes, each.device, each.time) for each in (*plan.frontier, *plan.alternatives)]
    told += [(each.tried, each.device, each.time) for each in plan.attempts if each.how == "full trace"]
    assert len({words for words, _, _ in told}) < len(told), "some are named more than once"
    assert len({words for words, _, _ in told}) == len({*told})


def test_devices_differ_in_what_is_worth_it() -> None:
    """Half precision pays on cards that have units for it; on others a plan that keeps fp32 is as good."""
    found = searching("images", find_device("RTX 3060"), **SMALL)
    precision = found.problem.by_name["precision"]
    half, whole = estimate(found, (precision, precision.options[-1])), found.estimates.as_it_is()
    assert half.seconds < whole.seconds and half.peak < whole.peak


@pytest.mark.parametrize("part", [0.6, 0.1])
def test_an_option_that_the_job_cannot_run_is_passed_over(part: float) -> None:
    plan = fit("stepping", part)
    assert plan.fits == (part == 0.6)
    assert plan.settings["images"] == 4  # where nothing fits this is the nearest
    [refused] = [each for each in plan.attempts if each.outcome == "cannot run"]
    assert refused.tried == "images 1" and "Expected more than 1 value per channel" in refused.reason


# -- the log of attempts ---------------------------------------------------------------------------------------


def test_every_full_trace_is_in_the_log_with_its_estimate() -> None:
    plan = fit("images", 0.35)
    first, *_, last = plan.attempts
    assert (first.tried, first.outcome, first.device, first.time) == (
        "as it is", plan.before.outcome, plan.before.on_device.high, 1.0,
    )  # fmt: skip
    assert (last.how, last.outcome, last.device) == ("full trace", "fits", plan.after.on_device.high)
    assert last.time == plan.time and last.time_estimated == pytest.approx(plan.time, rel=0.05)
    assert last.device_estimated == pytest.approx(last.device, rel=0.1)
    assert [each.tried for each in plan.attempts if each.how == "few images"] == ["precision bf16"]


class Refusing(Job):
    """The images job, whose half precision fails in some way."""

    def __init__(self, failure: Exception) -> None:
        self.inner, self.failure = opened("images"), failure
        self.name, self.settings, self.knobs = self.inner.name, self.inner.settings, self.inner.knobs  # type: ignore[misc,method-assign]

    def trace(self, request: TraceRequest) -> Timeline:
        if request.settings["precision"] == "bf16":
            raise self.failure
        return self.inner.trace(request)


@pytest.mark.parametrize("failure", [CannotDo("no bf16 here"), JobError("the job raised ValueError")], ids=repr)
def test_what_the_job_cannot_do_is_passed_over_and_noted(failure: Exception) -> None:
    plan = oomproof.fit(Refusing(failure), on=card("images", 0.6, **SMALL), **SMALL)
    assert plan.fits and plan.settings["precision"] == "fp32"
    assert ("precision bf16", "cannot run", str(failure)) in [
        (each.tried, each.outcome, each.reason) for each in plan.attempts
    ]


@pytest.mark.parametrize("failure", [InputError("a fault"), OomproofError("a fault"), KeyError("a fault")], ids=repr)
def test_any_other_failure_ends_the_search(failure: Exception) -> None:
    with pytest.raises(type(failure), match="a fault"):
        oomproof.fit(Refusing(failure), on=card("images", 0.6, **SMALL), **SMALL)
