"""A budget of host RAM: outcome, verdict, why and next count it beside the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from forecasts import MIB, SETTINGS, mask_rcnn
from plans import brought_to_fit

import oomproof
from oomproof.report import plan_verdict
from oomproof.report.advice import next_steps
from oomproof.report.terminal import describe_job
from oomproof.report.verdict import verdict, why
from oomproof.sources import open_job
from oomproof.sources.settings import settings_of

BIG, SMALL = 12 << 30, 4 << 30
"""a device on which the step fits, and one on which it does not"""


@pytest.mark.parametrize(
    ("ram", "host", "said"),
    [
        (4000, "fits", "; fits the host: 2.93 of 3.91 GiB RAM (at worst 3.91)"),
        (3999, "at risk", "; at risk on the host: 2.93 of 3.91 GiB RAM expected, 3.91 at worst"),
        (2999, "does not fit", "; does not fit the host: needs 2.93 GiB RAM (at worst 3.91), has 2.93"),
    ],
)
def test_the_worse_of_device_and_host_is_the_outcome(ram: int, host: str, said: str) -> None:
    fits, misses = (replace(mask_rcnn(total), ram=ram * MIB) for total in (BIG, SMALL))
    assert (fits.on_device_outcome, fits.host_outcome, fits.outcome) == ("fits", host, host)
    assert fits.fits is (host == "fits")
    assert verdict(fits) == verdict(mask_rcnn(BIG)) + said
    assert misses.outcome == misses.on_device_outcome == "does not fit"
    assert verdict(misses) == verdict(mask_rcnn(SMALL)) + said


def test_nothing_is_said_where_nobody_asked() -> None:
    assert "host" not in verdict(mask_rcnn(BIG)) and mask_rcnn(BIG).host_outcome == "fits"


def test_why_and_next_speak_of_the_host() -> None:
    short = replace(mask_rcnn(BIG), ram=3000 * MIB)
    assert why(short).startswith("host RAM is 0.98 GiB short at worst, for the process, its data and their workers; ")
    sentence, steps = next_steps(short, SETTINGS)
    assert sentence == "save 0.98 GiB of host RAM to be safe: `oomproof fit` with the same --ram finds out how"
    assert steps == ()
    busy = replace(short, settings=short.settings.with_values({"workers": 6}))
    assert [step.option for step in next_steps(busy, SETTINGS)[1]] == ["--set workers=0"]
    both = replace(mask_rcnn(SMALL), ram=3000 * MIB)
    assert next_steps(both, SETTINGS) == next_steps(mask_rcnn(SMALL), SETTINGS)  # the device comes first


def test_a_plan_that_only_the_host_refuses_does_not_begin_with_fits() -> None:
    made = brought_to_fit()
    short = replace(made, after=replace(made.after, ram=2999 * MIB))
    assert plan_verdict.verdict(short) == (
        "does not fit the host even with 2 changes: needs 2.93 GiB RAM (at worst 3.91), has 2.93; RTX 3060 12GB itself "
        "has room: 9.81 of 11.76 GiB (at worst 10.90)"
    )
    assert plan_verdict.next_step(short, False)[0].startswith("nothing that is allowed saves enough host RAM")


def test_a_plan_that_only_shared_memory_refuses_says_so() -> None:
    made = brought_to_fit()
    short = replace(made, after=replace(made.after, shm=253 * MIB, shm_limit=64 * MIB))
    assert plan_verdict.verdict(short).startswith(
        "does not fit /dev/shm even with 2 changes: 0.25 of 0.06 GiB; RTX 3060"
    )
    assert "give it 0.25 GiB or more" in plan_verdict.next_step(short, False)[0]


def test_why_tells_what_was_short_before() -> None:
    """Also where it was /dev/shm alone that workers filled."""
    made = brought_to_fit()
    roomy = replace(made.after, shm=253 * MIB, shm_limit=64 * MIB)
    assert plan_verdict.why(replace(made, before=roomy)).startswith("as it is it needs 0.25 GiB of /dev/shm; ")


def test_what_stays_free_is_of_what_the_allocator_may_take() -> None:
    free = replace(mask_rcnn(BIG), room=7000 * MIB)
    assert next_steps(free, SETTINGS)[0].startswith("1.22 GiB of the 6.84 that the allocator may take stay free")


@pytest.mark.slow
def test_workers_that_nobody_named_are_told_where_the_host_counts() -> None:
    job = "torchvision:resnet18"

    def describe(**given: Any) -> str:
        forecast = oomproof.check(job, on="8GiB", batch=2, image_size="64x64", **given)
        return describe_job(forecast, settings_of(open_job(job)), given).plain

    assert "workers 0 (assumed)" in describe(ram="8GiB")
    assert "workers 2" in describe(ram="8GiB", workers=2)
    assert "workers" not in describe()
