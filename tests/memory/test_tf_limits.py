"""What TensorFlow lets its allocator take, and that a verdict says so where it decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomproof.api.check import check
from oomproof.errors import InputError
from oomproof.memory import make_forecast as forecaster
from oomproof.memory.about import About
from oomproof.memory.cards.devices import Device
from oomproof.memory.cards.tf_limits import MIB, largest_limit, limit
from oomproof.memory.files import timeline_file
from oomproof.memory.forecast import Forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import Builder, Timeline
from oomproof.report.verdict import tight, verdict, why
from oomproof.sources.saved.job import open_saved
from oomproof.sources.settings import settings_of

GIB = 1 << 30


def card(gib: float, capability: tuple[int, int] = (8, 6)) -> Device:
    return Device("a card", int(gib * GIB), capability=capability)


@pytest.mark.parametrize(
    ("device", "left"),
    [
        (card(8, (6, 1)), 500),
        (card(8, (7, 5)), 1050),
        (card(8, (8, 6)), 1536),
        (card(8, (9, 0)), 1800),
        (card(8, (0, 0)), 1536),
        (card(2.2), 225),
        (card(1), 225),
    ],
)
def test_what_is_left_to_libraries(device: Device, left: int) -> None:
    """By what is free once the context is there: a card of 2.2 GiB is a small one with a context of 300 MiB."""
    assert limit(device, Runtime(), 300 * MIB) == device.budget - (300 + left) * MIB


def test_a_limit_of_the_users() -> None:
    assert limit(card(8), Runtime(memory_limit_mb=512), 300 * MIB) == 512 * MIB
    assert limit(card(0.25), Runtime(), 300 * MIB) == 0


def test_a_limit_by_hand_may_be_above_tensorflows_own() -> None:
    """TensorFlow does not hold it against what is free; here the context at its largest and 225 MiB have to stay."""
    most = 8192 - 850 - 225
    assert largest_limit(card(8)) == most > 8192 - 300 - 1536
    assert limit(card(8), Runtime(memory_limit_mb=most), 300 * MIB) == most * MIB
    with pytest.raises(InputError, match=rf"memory_limit_mb={most + 1} leaves too little .* at most {most}, or 0 for"):
        limit(card(8), Runtime(memory_limit_mb=most + 1), 300 * MIB)
    # As much as TensorFlow takes by itself is never too much.
    old = card(8, (6, 1))
    usual = limit(old, Runtime(), 300 * MIB)
    assert largest_limit(old) * MIB < usual == limit(old, Runtime(memory_limit_mb=usual // MIB), 300 * MIB)


def holding(size: int) -> Timeline:
    step = Builder()
    for _ in range(2):
        step.enter("forward")
        block = step.allocate(size, kind="activation", owner="net", op="Conv2D")
        step.enter("backward")
        step.free(block)
    return step.build(About(allocator="bfc"))


def forecast(size: int, gib: float) -> Forecast:
    return forecaster.build_forecast(holding(size), card(gib), Runtime(), "job", {})


def test_a_verdict_that_the_device_alone_does_not_explain() -> None:
    told = forecast(2400 * MIB, 4)
    assert told.outcome == "does not fit" and told.on_device.expected < told.budget
    assert "the allocator needs 2.34 GiB (at worst 2." in verdict(told)
    assert "and may take 2.16 of 4.00" in verdict(told)
    assert told.room is not None and told.excess == told.reserved.high - told.room > 0


def test_at_risk_by_the_limit() -> None:
    told = forecast(2100 * MIB, 4)
    assert told.outcome == "at risk" and told.on_device.expected < told.budget
    assert verdict(told).startswith("at risk on a card: the allocator needs 2.05 GiB (at worst 2.")


def test_what_is_too_large_for_the_device_is_said_as_ever() -> None:
    told = forecast(4000 * MIB, 4)
    assert verdict(told).startswith("does not fit a card: needs 4.")


def test_what_fits_says_what_stays_free_below_the_limit() -> None:
    told = forecast(1000 * MIB, 4)
    assert told.fits and told.room is not None and not tight(told)
    assert told.excess == max(told.reserved.high - told.room, told.on_device.high - told.budget) < 0


def test_a_context_that_may_not_fit_beside_the_allocator_is_a_risk() -> None:
    told = forecast(300 * MIB, 1)
    assert told.outcome == "at risk" and told.on_device.high > told.budget and not tight(told)
    assert verdict(told).startswith("at risk on a card: 0.") and verdict(told).endswith("at worst")
    assert why(told).startswith("at the upper figures memory runs out in forward of net")


def test_a_saved_step_has_the_settings_of_tensorflow(tmp_path: Path) -> None:
    timeline_file.save(holding(1000 * MIB), tmp_path / "step.timeline")
    job = open_saved(tmp_path / "step.timeline")
    assert [setting.name for setting in settings_of(job)] == ["memory_growth", "memory_limit_mb"]
    told = check(job, card(4), memory_limit_mb="512")
    assert told.outcome == "does not fit" and told.room == 512 * MIB


def test_pytorch_may_take_all() -> None:
    step = holding(1000 * MIB)
    plain = Timeline(**{**vars(step), "about": About()})
    told = forecaster.build_forecast(plain, card(4), Runtime(), "job", {})
    assert told.room is None and told.excess == told.on_device.high - told.budget
