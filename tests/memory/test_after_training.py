"""Validation in the allocator that training leaves behind, and another job on the same card."""

from __future__ import annotations

import numpy as np
import pytest
from histories import timelines
from hypothesis import given

from oomproof.errors import InputError
from oomproof.memory.after_training import follow, in_cache
from oomproof.memory.allocators.cuda import CudaRules, replay
from oomproof.memory.cards.beside import hold_beside
from oomproof.memory.cards.devices import find_device
from oomproof.memory.forecast import Forecast
from oomproof.memory.make_forecast import build_forecast, with_validation
from oomproof.memory.runtime import Runtime
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Builder, Timeline

GIB = 1 << 30


def training(temporary: int = 3, state: int = 1) -> Timeline:
    """A large temporary block is freed; optimizer state then comes to lie in its segment, and stays."""
    step = Builder()
    step.enter("forward")
    block = step.allocate(temporary * GIB, kind="temporary", owner="net", op="conv2d")
    step.free(block)
    step.enter("optimizer")
    step.allocate(state * GIB, kind="optimizer", owner="net", op="adam")
    return step.build()


def validation(asks: int = 4, state: int = 1, batch: int = 0) -> Timeline:
    step = Builder()
    step.allocate(state * GIB, kind="optimizer", owner="net", op="adam")
    if batch:
        step.allocate(batch * GIB, kind="input", owner="", op="batch")
    step.enter("validation")
    step.call(owner="net", spec={"op": "sort", "elements": 1})
    step.free(step.allocate(asks * GIB, kind="temporary", owner="masks", op="grid_sampler_2d"))
    return step.build()


def both(size: str, *steps: Timeline) -> Forecast:
    device = find_device(size)
    alone = [build_forecast(step, device, Runtime(), "job", Settings()) for step in steps]
    return with_validation(alone[0], in_cache(alone[1], (steps[0], steps[1]), alone[0], device, Runtime()))


def test_a_segment_that_state_lies_in_is_not_given_back() -> None:
    answer = both("7GiB", training(), validation())
    other = answer.validation
    assert other is not None and answer.on_device_outcome == "fits"
    assert other.on_device.expected < 6 * GIB  # without what training left it would fit
    assert other.shortage is not None and other.shortage.phase == "validation" and other.shortage.owner == "masks"
    assert answer.outcome == "does not fit" and answer.decides == "validation"


def test_a_free_segment_is_given_back_on_a_full_device() -> None:
    # State is larger than what was freed, so it has a segment of its own.
    answer = both("8GiB", training(2, 3), validation(3, 3))
    other = answer.validation
    assert other is not None and other.after_training is not None
    assert other.shortage is None and answer.outcome == "fits"
    roomy = both("24GiB", training(2, 3), validation(3, 3)).validation
    assert roomy is not None and roomy.after_training is not None
    assert roomy.after_training.expected - roomy.on_device.expected == 2 * GIB  # kept where there is room for it


def test_what_fits_into_the_cache_takes_nothing_more() -> None:
    answer = both("24GiB", training(3, 4), validation(2, 4))
    assert answer.validation is not None and answer.validation.after_training is not None
    grown = answer.validation.after_training.expected - answer.on_device.expected
    assert grown == 2 << 20  # the sort's scratch, in a segment for small blocks
    assert answer.decides == "training"
    assert not any(each.startswith("validation and") for each in answer.not_counted)


def test_one_history() -> None:
    first, second = training(), validation(batch=1)
    run = follow(first, second)
    assert [run.phase_at(tick) for tick in (0, run.ticks - 1)] == ["forward", "validation"]
    assert run.bytes.sum() == first.bytes.sum() + second.bytes.sum() - GIB  # the state is there once
    assert run.curve().max() == (1 + 1 + 4) * GIB
    assert len(run.calls) == 1 and run.calls.phase[0] == run.mark_phase[-1]


@given(timelines())
def test_any_history_goes_on(first: Timeline) -> None:
    run = follow(first, validation(batch=1))
    assert np.all(run.born < run.died) and run.died.max(initial=0) <= run.ticks
    events = np.concatenate([run.born, run.died[run.died < run.ticks], run.calls.tick, run.calls.tick + 1])
    assert len(set(events.tolist())) == len(events)
    assert replay(run, CudaRules()).reserved >= replay(first, CudaRules()).reserved


def test_another_job_takes_its_part() -> None:
    alone, shared = find_device("RTX 3060"), hold_beside(find_device("RTX 3060"), "3GiB")
    assert alone.budget - shared.budget == 3 * GIB and shared.total == alone.total
    assert hold_beside(alone, None) is alone and hold_beside(shared, 1 << 30).held == 4 * GIB
    answers = [build_forecast(training(9), device, Runtime(), "job", Settings()).outcome for device in (alone, shared)]
    assert answers == ["fits", "does not fit"]


@pytest.mark.parametrize("text", ["3", "many", "-1GiB", "nanGiB", "100GiB", True])
def test_what_another_job_cannot_hold(text: str) -> None:
    with pytest.raises(InputError, match="beside="):
        hold_beside(find_device("RTX 3060"), text)
