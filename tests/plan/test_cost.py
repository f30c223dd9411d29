"""The roofline: which of arithmetic, traffic and launches an operation waits for, and how devices compare."""

from __future__ import annotations

import numpy as np
import pytest

from oomproof.memory.activity import (
    CONVOLUTION,
    DEPTHWISE,
    GROUPED,
    HALF,
    HALF_CONVOLUTION,
    HALF_DEPTHWISE,
    PLAIN,
    Work,
)
from oomproof.memory.cards.devices import find_device
from oomproof.plan.estimates.roofline import LAUNCH, Speed, speed_of


def work(flops: int = 0, nbytes: int = 0, form: int = PLAIN) -> Work:
    one = np.ones(1, dtype=np.int64)
    return Work(one, one, one, one * flops, one * nbytes, one * form)


SPEED = Speed(
    plain=10.0, half=40.0, convolution=20.0, half_convolution=25.0, bandwidth=5.0, grouped=4.0, depthwise=2.0,
    half_depthwise=1.0, launch=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (work(), 1.0),
        (work(flops=1000), 100.0),
        (work(flops=1000, form=HALF), 25.0),
        (work(flops=1000, form=CONVOLUTION), 50.0),
        (work(flops=1000, nbytes=1000), 200.0),
        (work(flops=1000, nbytes=400), 100.0),
        (work(flops=1000, nbytes=1000, form=DEPTHWISE), 500.0),
        (work(flops=1000, nbytes=1000, form=HALF_DEPTHWISE), 1000.0),
        (work(flops=1000, form=HALF_CONVOLUTION), 40.0),
        (work(flops=1000, nbytes=1000, form=GROUPED), 250.0),
    ],
)
def test_an_operation_takes_the_longest_of_three(given: Work, seconds: float) -> None:
    assert SPEED.seconds(given).tolist() == [seconds]


def test_operations_add_up() -> None:
    assert SPEED.total(work(flops=1000).join(work()).join(work(nbytes=50))) == 100 + 1 + 10
    assert SPEED.total(Work()) == 0


def test_half_precision_is_quicker_where_there_are_units_for_it() -> None:
    turing, pascal = speed_of(find_device("RTX 2080 Ti")), speed_of(find_device("GTX 1080 Ti"))
    assert turing.half > 2 * turing.plain
    assert pascal.half < 1.5 * pascal.plain
    assert pascal.half >= pascal.plain  # autocast is never taken to be slower arithmetic


def test_tf32_convolutions_from_ampere_on() -> None:
    ampere, turing = speed_of(find_device("A100 40GB")), speed_of(find_device("RTX 2080 Ti"))
    assert ampere.convolution > 2 * ampere.plain
    assert turing.convolution == turing.plain


def test_a_faster_card_is_faster() -> None:
    slow, fast = speed_of(find_device("RTX 3060")), speed_of(find_device("RTX 4090"))
    assert all(getattr(fast, name) > getattr(slow, name) for name in ("plain", "half", "convolution", "bandwidth"))


def test_a_plain_amount_of_memory_stands_for_a_typical_card() -> None:
    assert speed_of(find_device("8GiB")) == speed_of(find_device("24GiB"))
    assert speed_of(find_device("8GiB")).plain == pytest.approx(speed_of(find_device("RTX 3060")).plain, rel=0.1)
    assert speed_of(find_device("8GiB")).launch == LAUNCH


def test_a_step_has_a_time_where_card_and_work_are_known() -> None:
    import oomproof

    fast, slow = (oomproof.check("torchvision:resnet18", on=card, batch=8) for card in ("RTX 4090", "GTX 1080 Ti"))
    assert fast.step_seconds is not None and slow.step_seconds is not None
    assert fast.step_seconds.low < fast.step_seconds.expected < fast.step_seconds.high
    assert fast.step_seconds.expected < slow.step_seconds.expected
    assert oomproof.check("torchvision:resnet18", on="8GiB", batch=8).step_seconds is None, "a size has no speed"
    four = oomproof.check("torchvision:resnet18", on="RTX 4090", batch=8, accumulate=4).step_seconds
    assert four is not None and 2 < four.expected / fast.step_seconds.expected < 4.2, "four passes, one update"
