"""Ways by estimate: what each would come to, and which of them are worth making."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from small_jobs import opened, peak

from oomproof.memory.activity import Work
from oomproof.memory.cards.devices import find_device
from oomproof.plan.estimates import recomputable
from oomproof.plan.estimates.recomputable import RecomputedModules
from oomproof.plan.estimates.roofline import HOST_LINK, seconds_of, speed_of
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.way import PENALTY, Way
from oomproof.plan.estimates.ways import Ways
from oomproof.plan.tracing import Tracing
from oomproof.plan.turned_knobs import Turned, promise_of
from oomproof.sources.job import Knob
from oomproof.sources.run_knobs import all_knobs
from oomproof.sources.settings import resolve

DEVICE = find_device("RTX 3060")
SPEED = speed_of(DEVICE)
IMAGES = 4


@cache
def tracing(name: str) -> Tracing:
    return Tracing(opened(name), DEVICE, lambda text, done: None)


@cache
def traced(name: str, **given: Any) -> TracedStep:
    job = tracing(name)
    asked = resolve(job.job, {"batch": IMAGES, **given})
    return job.make_traced_step((), asked, job.trace(asked, "")[0], IMAGES)


@cache
def knobs(name: str, **given: Any) -> dict[str, Knob]:
    start = traced(name, **given)
    return {knob.name: knob for knob in all_knobs(tracing(name).job, start.settings, start.timeline.about, DEVICE)}


def turned(knob: Knob, value: Any) -> Turned:
    return knob, next(option for option in knob.options if option.value == value)


def ways_of(name: str, *names: str, **given: Any) -> Ways:
    return Ways(SPEED, [knobs(name, **given)[each] for each in names])


def batches(name: str) -> list[Turned | None]:
    knob = knobs(name)["batch"]
    return [(knob, option) for option in knob.options]


@pytest.mark.parametrize(
    ("value", "settings"),
    [("2 x 2", {"batch": 2, "accumulate": 2}), ("1 x 4", {"batch": 1, "accumulate": 4})],
)
def test_micro_batches_come_to_what_a_trace_shows(value: str, settings: dict[str, Any]) -> None:
    start = traced("images")
    way = ways_of("images", "batch").bare(start, (turned(knobs("images")["batch"], value),))
    assert way.changed == settings
    job = tracing("images")
    asked = start.settings.with_values(settings)
    step = job.trace(asked, "")[0]
    assert way.peak == pytest.approx(peak(job.lean(step, asked)[0]) + start.lasting, rel=0.01)
    real = seconds_of(step, SPEED, settings["batch"], settings["accumulate"], 0)
    assert way.seconds == pytest.approx(real, rel=0.03)


def test_knobs_build_on_each_other_in_whatever_order_they_are_given() -> None:
    start, every = traced("wide"), knobs("wide")
    both = (turned(every["update"], "plain"), turned(every["optimizer_state"], "host"))
    estimates = ways_of("wide", "update", "optimizer_state")
    one, other = estimates.bare(start, both), estimates.bare(start, both[::-1])
    assert (one.peak, one.seconds) == (other.peak, other.seconds)
    job, asked = tracing("wide"), start.settings.with_values(one.changed)
    step = job.trace(asked, "")[0]
    assert one.peak == pytest.approx(peak(job.lean(step, asked)[0]) + start.lasting, rel=0.03)


def test_state_that_travels_takes_its_time() -> None:
    start, state = traced("wide"), knobs("wide")["optimizer_state"]
    estimates = ways_of("wide", "optimizer_state")
    here, there = (estimates.bare(start, (turned(state, where),)) for where in ("device", "host"))
    weights = 4 * 6 * 4096**2
    assert (there.seconds - here.seconds) * IMAGES >= 0.95 * 2 * 2 * weights / HOST_LINK


def test_ways_stay_within_their_room() -> None:
    start = traced("images")
    estimates = ways_of("images", "batch", "checkpoint", "update", "optimizer_state")
    whole = estimates.bare(start, ()).peak
    for part in (0.9, 0.6, 0.3):
        room = int(whole * part)
        found = estimates.find_fitting(start, room, batches("images"))
        assert found and all(way.peak <= room for way in found)
        best = min(found, key=lambda way: way.price)
        # what is left out cannot have been better
        for batch in batches("images"):
            assert batch is not None
            alone = Ways(SPEED, [knobs("images")[each] for each in ("batch", "checkpoint")])
            rivals = alone.find_fitting(start, room, [batch])
            assert all(best.price <= way.price * 1.0001 for way in rivals)


def test_less_room_costs_more() -> None:
    start = traced("images")
    estimates = ways_of("images", "batch", "checkpoint")
    whole = estimates.bare(start, ()).peak
    prices = []
    for part in (1.0, 0.8, 0.6, 0.4, 0.25):
        found = estimates.find_fitting(start, int(whole * part), batches("images"))
        prices.append(min(way.price for way in found))
    assert prices == sorted(prices) and prices[-1] > prices[0]


def test_what_cannot_be_better_is_not_looked_at() -> None:
    start = traced("images")
    estimates = ways_of("images", "batch", "checkpoint")
    cheapest = estimates.bare(start, ()).price
    assert estimates.find_fitting(start, 1 << 40, batches("images"), best=cheapest * 0.9) == []


def test_free_changes_that_save_time_are_looked_at() -> None:
    """Gradients of micro-batches that are used at once are not added up first, which may make a way the best."""
    given = {"optimizer": "sgd"}
    start, every = traced("wide", **given), knobs("wide", **given)
    estimates = ways_of("wide", "batch", "gradients", **given)
    some = [(every["batch"], option) for option in every["batch"].options[1:]]
    at_once = turned(every["gradients"], "at_once")
    ways = [estimates.bare(start, (batch, at_once)) for batch in some]
    plain = [estimates.bare(start, (batch,)) for batch in some]
    assert all(way.seconds < other.seconds for way, other in zip(ways, plain, strict=True))
    room = min(way.peak for way in plain) - 1  # so that gradients have to go
    cheapest = min((way for way in ways if way.peak <= room), key=lambda way: way.price)
    just_above = cheapest.price * 1.006
    assert just_above < min(way.price for way in plain)
    assert [way.price for way in estimates.find_fitting(start, room, some, just_above)] == [cheapest.price]


def test_free_changes_are_made_only_where_they_help() -> None:
    start = traced("wide")
    estimates = ways_of("wide", "update", "checkpoint")
    whole = estimates.bare(start, ())
    [plain] = estimates.find_fitting(start, whole.peak, [None])
    assert plain.turned == () and plain.recomputed.modules == ()
    [tighter] = estimates.find_fitting(start, int(whole.peak * 0.9), [None])
    assert [knob.name for knob, _ in tighter.turned] == ["update"] and not tighter.recomputed.modules


def test_free_changes_that_do_not_help_are_left_out_every_time() -> None:
    given = {"zero_grad": "before_backward"}
    start = traced("wide", **given)
    estimates = ways_of("wide", "update", "zero_grad", "checkpoint", **given)
    room = int(estimates.bare(start, ()).peak * 0.9)
    for each in (start, start, start.correct(1.0)):  # a search comes back to the same question
        [way] = estimates.find_fitting(each, room, [None])
        assert len(way.turned) == 1 and way.step is each


def test_the_thriftiest_way_is_below_all_others() -> None:
    start = traced("images")
    estimates = ways_of("images", "batch", "checkpoint", "update", "optimizer_state")
    last = knobs("images")["batch"].options[-1]
    least = estimates.thriftiest(start, (knobs("images")["batch"], last)).peak
    assert estimates.find_fitting(start, int(least * 0.97), batches("images")) == []
    assert estimates.find_fitting(start, int(least * 1.05), batches("images"))


def test_without_recomputing() -> None:
    start = traced("images")
    estimates = ways_of("images", "batch")
    found = estimates.find_fitting(start, estimates.bare(start, ()).peak // 2 + (4 << 20), batches("images"))
    assert found and all(not way.recomputed.modules for way in found)
    assert estimates.smallest(found[0]) == found[0]


def test_a_correction_makes_everything_larger() -> None:
    start = traced("images")
    estimates = ways_of("images", "batch")
    larger = start.correct(1.1).correct(1.1)
    assert estimates.bare(larger, ()).peak == pytest.approx(1.21 * estimates.bare(start, ()).peak, rel=1e-6)
    room = estimates.bare(start, ()).peak
    assert estimates.find_fitting(start, room, [None]) and not estimates.find_fitting(larger, room, [None])


def test_a_correction_asks_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start, estimates = traced("images"), ways_of("images", "batch", "checkpoint")
    plain = estimates.smallest(estimates.bare(start, ()))
    monkeypatch.setattr(recomputable, "find_recomputable", lambda *_, **__: pytest.fail("asked again"))
    larger = start.correct(1.5)
    again = estimates.smallest(estimates.bare(larger, ()))
    assert again.step is larger and again.recomputed == plain.recomputed
    assert again.peak == pytest.approx(1.5 * plain.peak, rel=1e-6)
    assert estimates.smallest(estimates.bare(start, ())).peak == plain.peak


def test_prices_hold_promises_and_harm_against_time() -> None:
    start, every = traced("images"), knobs("images")
    way = Way((), RecomputedModules((), 0.0, 1), IMAGES, 10.0, 1, start)
    assert way.price == 10.0 and way.promise == "identical" and way.changed == {}
    again = replace(way, recomputed=RecomputedModules(("1.0", "1.1:2"), 1.0, 1))
    assert again.price == 10 * (1 + PENALTY["identical"])
    assert again.changed == {"checkpoint": "1.0,1.1:2"}
    eight = turned(every["optimizer_state"], "8bit")
    rounded = replace(way, given=(eight,))
    assert rounded.promise == promise_of(*eight) == "equivalent"
    assert rounded.price == pytest.approx(10 * (1 + PENALTY["equivalent"] + eight[1].harm))
    assert rounded.harm == 0  # harm is counted of what makes another training
    side = turned(every["side"], 96)
    assert replace(way, given=(side,)).harm == side[1].harm > 0


def test_an_update_is_shared_by_its_micro_batches() -> None:
    step = traced("wide").timeline
    once, often = (seconds_of(step, SPEED, 4, count, 0) for count in (1, 8))
    assert often < once
    assert seconds_of(step, SPEED, 8, 1, 0) == pytest.approx(once / 2)


def test_a_step_without_work_has_some_time() -> None:
    seconds = seconds_of(replace(traced("wide").timeline, work=Work()), SPEED, 4, 2, 0)
    assert 0 < seconds < 1e-3 and math.isfinite(seconds)
