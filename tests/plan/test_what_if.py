"""Every what-if against a trace with that very setting: memory, and time by the same arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from small_jobs import peak, traced

from oomproof.memory.cards.devices import find_device
from oomproof.memory.timeline import PHASES, Builder, Timeline
from oomproof.plan.estimates import what_if
from oomproof.plan.estimates.roofline import seconds_of, speed_of

traced = cache(traced)
SPEED = speed_of(find_device("RTX 3060"))


def close(estimate: Timeline, real: Timeline, memory: float = 0.01, time: float = 0.03) -> None:
    assert peak(estimate) == pytest.approx(peak(real), rel=memory)
    expected, found = (seconds_of(step, SPEED, 1, 1, 0) for step in (real, estimate))
    assert found == pytest.approx(expected, rel=time)


def in_forward(step: Timeline) -> int:
    """The most that is live before backward."""
    backward = int(step.mark_tick[step.mark_phase == PHASES.index("backward")][-1])
    return int(step.curve()[what_if.step_start(step) : backward].max())


def in_backward(step: Timeline) -> int:
    """The most that is live from backward to the update."""
    backward, update = (int(step.mark_tick[step.mark_phase == PHASES.index(n)][-1]) for n in ("backward", "optimizer"))
    return int(step.curve()[backward:update].max())


@pytest.mark.parametrize("name", ["images", "normed", "tokens"])
def test_more_images_and_fewer(name: str) -> None:
    few, many = traced(name, batch=2), traced(name, batch=8)
    close(what_if.scale_images(few, 4), many)
    close(what_if.scale_images(many, 0.25), few)
    assert peak(many) > 2.5 * peak(few)  # or there would be nothing to see


@pytest.mark.parametrize("name", ["images", "tokens"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_more_images_in_half_precision(name: str, precision: str) -> None:
    few, many = (traced(name, batch=size, precision=precision) for size in (2, 8))
    close(what_if.scale_images(few, 4), many, memory=0.04)


def test_weights_do_not_grow_with_images() -> None:
    few, many = traced("wide", batch=2), traced("wide", batch=8)
    assert peak(what_if.scale_images(few, 4)) == pytest.approx(peak(many), rel=0.01)


@pytest.mark.parametrize("name", ["images", "wide", "tokens"])
@pytest.mark.parametrize("zero_grad", ["before_forward", "before_backward"])
def test_accumulated(name: str, zero_grad: str) -> None:
    plain = traced(name, batch=4, zero_grad=zero_grad)
    real = traced(name, batch=4, zero_grad=zero_grad, accumulate=3)
    close(what_if.accumulate_gradients(plain), real)
    assert what_if.accumulate_gradients(real) is real


def test_a_new_gradient_is_there_beside_the_sum_that_it_is_added_to() -> None:
    plain, real = (traced("wide", batch=1, optimizer="sgd", accumulate=count) for count in (1, 3))
    estimate = what_if.accumulate_gradients(plain)
    assert in_backward(estimate) == pytest.approx(in_backward(real), rel=0.001)


@pytest.mark.parametrize("name", ["images", "wide", "tokens"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_gradients_that_are_used_at_once(name: str, accumulate: int) -> None:
    kept = traced(name, batch=4, optimizer="sgd", accumulate=accumulate)
    real = traced(name, batch=4, optimizer="sgd", accumulate=accumulate, gradients="at_once")
    estimate = what_if.use_gradients_at_once(kept)
    close(estimate, real)
    assert what_if.use_gradients_at_once(estimate) is estimate
    if name == "wide":
        assert peak(real) < 0.8 * peak(kept)


def test_gradients_used_at_once_in_micro_batches() -> None:
    kept = traced("wide", batch=4, optimizer="sgd")
    real = traced("wide", batch=4, optimizer="sgd", accumulate=3, gradients="at_once")
    close(what_if.accumulate_gradients(what_if.use_gradients_at_once(kept)), real)


@pytest.mark.parametrize("name", ["images", "tokens"])
def test_parameters_updated_in_backward(name: str) -> None:
    kept, real = (traced(name, batch=4, optimizer="adamw", gradients=way) for way in ("kept", "at_once"))
    close(what_if.use_gradients_at_once(kept), real)


def test_old_gradients_that_go_before_forward() -> None:
    late, early = traced("tokens", zero_grad="before_backward"), traced("tokens")
    estimate = what_if.drop_gradients_first(late)
    close(estimate, early)
    assert in_forward(estimate) == pytest.approx(in_forward(early), rel=0.01)
    assert in_forward(late) > 1.02 * in_forward(early)


@pytest.mark.parametrize("name", ["wide", "images", "tokens"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_updates_parameter_by_parameter(name: str, optimizer: str) -> None:
    lists = traced(name, batch=2, optimizer=optimizer)
    plain = traced(name, batch=2, optimizer=optimizer, update="plain")
    once = what_if.update_one_by_one(lists)
    close(once, plain)
    for again in (once, plain):
        assert what_if.update_one_by_one(again) is again  # and not taken apart a second time


@pytest.mark.parametrize(
    ("name", "optimizer", "update"),
    [
        *itertools.product(["wide"], ["adamw", "sgd"], ["auto", "plain"]),
        ("images", "adamw", "auto"),
        ("tokens", "sgd", "auto"),
    ],
)
@pytest.mark.parametrize(("where", "bits"), [("host", 0), ("8bit", 8)])
def test_state_elsewhere(name: str, optimizer: str, update: str, where: str, bits: int) -> None:
    there = traced(name, batch=2, optimizer=optimizer, update=update)
    real = traced(name, batch=2, optimizer=optimizer, update=update, optimizer_state=where)
    close(what_if.state_elsewhere(there, bits), real, memory=0.02, time=0.12)
    if name == "wide":
        assert peak(real) < 0.85 * peak(there)


def test_state_elsewhere_after_a_plain_update_is_the_same_as_of_a_plain_update() -> None:
    lists, plain = traced("wide", batch=2), traced("wide", batch=2, update="plain")
    both = what_if.state_elsewhere(what_if.update_one_by_one(lists), 0)
    close(both, what_if.state_elsewhere(plain, 0), memory=0.02)


def test_state_bytes() -> None:
    step = traced("wide", batch=2)
    weights = 4 * (6 * (4096 * 4096 + 4096) + 4096 * 8 + 8)
    assert what_if.state_bytes(step) == pytest.approx(2 * weights, rel=1e-4)
    assert what_if.state_bytes(traced("wide", batch=2, optimizer_state="host")) < 1000


@pytest.mark.parametrize("name", ["images", "normed"])
def test_larger_images(name: str) -> None:
    small, large = traced(name, batch=2, side=96), traced(name, batch=2, side=128)
    close(what_if.with_larger_images(small, (128 / 96) ** 2), large)
    close(what_if.with_larger_images(large, (96 / 128) ** 2), small)


# -- torchvision's detectors -----------------------------------------------------------------------------------

RETINANET = "torchvision:retinanet_resnet50_fpn"


@pytest.mark.slow
def test_detector_with_more_images() -> None:
    few, many = (traced(RETINANET, batch=size, image_size="128x128") for size in (2, 4))
    close(what_if.scale_images(few, 2), many, memory=0.03, time=0.15)


@pytest.mark.thorough
@pytest.mark.slow
def test_matching_in_parts() -> None:
    size: dict[str, Any] = {"batch": 2, "image_size": "512x512", "boxes": 300}
    whole, parts = (traced(RETINANET, **size, matching=how) for how in ("whole", "chunked"))
    estimate = what_if.match_in_parts(whole)
    assert in_forward(whole) > 1.1 * in_forward(parts)
    assert peak(estimate) == pytest.approx(peak(parts), rel=0.05)
    assert peak(estimate) >= 0.98 * peak(parts)


# -- where the steady step begins ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "training",
    [{}, {"precision": "fp16"}, {"ema": True}, {"accumulate": 3}, {"zero_grad": "keep"}, {"optimizer_state": "8bit"}],
    ids=str,
)
def test_the_steady_step_is_whole(training: dict[str, Any]) -> None:
    step = traced("images", batch=2, **training)
    start = what_if.step_start(step)
    half = 1 + len(step.mark_tick) // 2
    assert start == step.mark_tick[half]
    assert (step.work.tick >= start).all()


def test_a_step_with_two_updates_is_whole() -> None:
    step = traced("own_step")
    start = what_if.step_start(step)
    assert (step.work.tick >= start).all()
    assert peak(step) == step.curve()[len(step.curve()) // 2 :].max()  # the first of the two updates is the large one


def by_hand(*phases: str) -> Timeline:
    builder = Builder()
    builder.allocate(1, kind="parameter", owner="fc", op="parameter")
    for phase in phases:
        builder.enter(phase)
        builder.free(builder.allocate(1, kind="temporary", owner="fc", op="op"))
    return builder.build()


STEP = ("forward", "backward", "optimizer")


@pytest.mark.parametrize(
    ("phases", "place"),
    [(STEP, 1), (STEP + STEP, 4), ((*STEP, *STEP, "forward"), 4), (("forward",), 1), (("forward", "backward") * 2, 1)],
)
def test_a_step_without_work_begins_with_its_last_forward(phases: tuple[str, ...], place: int) -> None:
    step = by_hand(*phases)
    assert what_if.step_start(step) == step.mark_tick[place]


def test_nothing_but_setup() -> None:
    assert what_if.step_start(by_hand()) == 0


CHANGES: list[Callable[[Timeline], Timeline]] = [
    lambda step: what_if.scale_images(step, 3),
    what_if.accumulate_gradients,
    what_if.drop_gradients_first,
    what_if.update_one_by_one,
    lambda step: what_if.state_elsewhere(step, 0),
    lambda step: what_if.state_elsewhere(step, 8),
    what_if.match_in_parts,
    lambda step: what_if.with_larger_images(step, 2),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["images", "wide"])
def test_no_history_is_impossible(change: Callable[[Timeline], Timeline], name: str) -> None:
    step = traced(name, batch=2, zero_grad="before_backward")
    then = change(step)
    assert (then.born <= then.died).all() and (then.bytes >= 0).all()
    assert (then.curve() >= 0).all()
    assert then.modules == step.modules
    assert (then.work.bytes >= 0).all() and len(then.work.tick) == len(then.work.flops) == len(then.work.form)


def test_steps_without_blocks_of_a_kind() -> None:
    for change in CHANGES:
        assert change(by_hand("forward", "backward")).curve().max() >= 1
