"""Plans that change how TensorFlow's allocator takes memory. The steps are made up; no framework is needed."""

from __future__ import annotations

from typing import Any

import pytest

from oomproof.api.check import check
from oomproof.api.fit import fit, list_knobs
from oomproof.memory.about import About
from oomproof.memory.cards.devices import Device
from oomproof.memory.cards.tf_limits import MIB
from oomproof.memory.lasting import context
from oomproof.memory.timeline import Builder, Timeline
from oomproof.sources.job import Settings
from oomproof.sources.saved.job import SavedJob
from oomproof.sources.tensorflow_run_knobs import tensorflow_knobs

PLAIN = Settings({"memory_growth": False, "memory_limit_mb": 0})


def card(mib: int, capability: tuple[int, int] = (8, 6), architecture: str = "ampere") -> Device:
    return Device("a card", mib * MIB, architecture, capability)


def job(*sizes: int, **about: Any) -> SavedJob:
    """Blocks of so many MiB that are live together."""
    step = Builder()
    for _ in range(2):
        step.enter("forward")
        blocks = [step.allocate(size * MIB, kind="activation", owner="net", op="Conv2D") for size in sizes]
        step.enter("backward")
        for block in blocks:
            step.free(block)
    timeline: Timeline = step.build(About(allocator="bfc", **about))
    return SavedJob("job", timeline)


def test_a_limit_above_tensorflows_own_leaves_the_context_and_libraries_their_room() -> None:
    device = card(8192)
    [knob] = tensorflow_knobs(PLAIN, device)
    assert knob.name == "memory_limit_mb" and knob.promise == "identical"
    usual, raised = knob.options
    assert usual.settings == {"memory_limit_mb": 0}
    assert raised.settings == {"memory_limit_mb": 8192 - context(device).high // MIB - 225}
    assert raised.note.startswith("1075 MiB stay for the CUDA context")
    # By itself TensorFlow takes what the context leaves, less 1536 MiB.
    assert f"takes {8192 - 330 - 1536} MiB" in knob.why


def test_no_limit_where_tensorflow_takes_as_much_by_itself() -> None:
    assert tensorflow_knobs(PLAIN, card(8192, (6, 1), "pascal")) == ()
    assert tensorflow_knobs(PLAIN, card(2048)) == ()


def test_a_limit_of_the_users_stays() -> None:
    assert tensorflow_knobs(PLAIN.with_values({"memory_limit_mb": 2000}), card(8192)) == ()


def test_jax_has_neither_knob() -> None:
    assert [knob.name for knob in list_knobs(job(100), card(8192))] == ["memory_limit_mb"]
    assert list_knobs(job(100, limits="jax"), card(8192)) == ()


def test_a_plan_raises_the_limit_where_nothing_else_helps() -> None:
    device = card(4096)
    plan = fit(job(2400), device)
    assert not plan.before.fits and plan.fits
    [change] = plan.changes
    assert (change.knob, change.after, change.promise) == ("memory_limit_mb", 3021, "identical")
    assert plan.settings == {**PLAIN, "memory_limit_mb": 3021}
    assert plan.after.room == 3021 * MIB
    assert check(job(2400), device, **plan.settings).on_device == plan.after.on_device
    assert any("could not create cudnn handle" in note for note in plan.after.notes)
    assert plan.promise == "identical"


def test_what_the_raised_limit_does_not_hold_either_is_a_miss() -> None:
    plan = fit(job(2900), card(4096))
    assert not plan.fits


def test_a_limit_may_be_left_alone() -> None:
    plan = fit(job(2400), card(4096), leave=["memory_limit_mb"])
    assert not plan.fits and plan.changes == ()


def test_without_growth_no_region_is_left_behind() -> None:
    """Growing, regions of 512, 512 and 1024 MiB come, and hold one, one and three of six blocks of 300."""
    device, step = card(4096), job(*[300] * 6)
    grown = check(step, device, memory_growth=True)
    assert not grown.fits and check(step, device).fits
    plan = fit(step, device, memory_growth=True)
    assert plan.fits
    [change] = plan.changes
    assert (change.knob, change.before, change.after, change.promise) == ("memory_growth", True, False, "identical")
    assert plan.settings == PLAIN


def test_a_limit_turns_growth_off() -> None:
    [growth, limit] = tensorflow_knobs(PLAIN.with_values({"memory_growth": True}), card(8192))
    assert growth.name == "memory_growth"
    assert limit.options[-1].settings == {"memory_limit_mb": 7117, "memory_growth": False}


@pytest.mark.parametrize("named", [True, False])
def test_a_limit_that_fits_with_ease_is_not_raised(named: bool) -> None:
    plan = fit(job(1000), card(4096), allow=["memory_limit_mb"] if named else [])
    assert plan.fits and plan.changes == ()
