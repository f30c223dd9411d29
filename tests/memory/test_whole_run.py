"""What a run holds after its first validation, in one allocator."""

from __future__ import annotations

import numpy as np

from oomproof.memory.cards.devices import find
from oomproof.memory.make_forecast import forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Builder, Timeline
from oomproof.memory.whole_run import cover_both, put_behind

MIB = 1 << 20


def step(phase: str, sizes: list[int]) -> Timeline:
    builder = Builder()
    builder.allocate(100 * MIB, kind="parameter", owner="net", op="parameter")
    builder.enter(phase)
    blocks = [builder.allocate(size * MIB, kind="activation", owner="net", op="conv") for size in sizes]
    for block in blocks:
        builder.free(block)
    return builder.build()


def test_the_model_is_there_once() -> None:
    training, validation = step("forward", [30] * 8), step("validation", [150, 70])
    both = put_behind(training, validation)
    assert both.peak().bytes == max(training.peak().bytes, validation.peak().bytes)
    assert int(both.curve()[-1]) == 100 * MIB and len(both) == len(training) + 2
    assert both.by_phase()["validation"] == 320 * MIB
    assert len(np.unique(np.concatenate([both.born, both.died[both.died < both.ticks]]))) == both.ticks


def test_the_cache_of_the_training_does_not_serve_the_validation() -> None:
    """Blocks of 30 MiB, each in a segment of its own, are no room for one of 150."""
    training, validation = step("forward", [30] * 8), step("validation", [150, 70])
    device, run = find("8GiB"), Runtime()
    alone = forecast(training, device, run, "job", Settings())
    covered = cover_both(alone, (training, validation), device, run)
    assert covered.reserved.high >= (100 + 8 * 30 + 220) * MIB > alone.reserved.high
    assert covered.on_device.high - covered.reserved.high == alone.on_device.high - alone.reserved.high
    assert covered.reserved.expected == alone.reserved.expected and covered.outcome == alone.outcome == "fits"


def test_what_is_cached_is_given_back_where_the_device_is_small() -> None:
    training, validation = step("forward", [30] * 8), step("validation", [150, 70])
    device = find("1450MiB")
    alone = forecast(training, device, Runtime(), "job", Settings())
    covered = cover_both(alone, (training, validation), device, Runtime())
    assert alone.outcome == covered.outcome and covered.on_device.high <= max(device.budget, alone.on_device.high)
