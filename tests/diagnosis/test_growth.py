"""A leak, the largest batch so far, and noise are told apart by how a column goes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest

from oomproof.diagnosis.growth import judge_growth

MIB = 1 << 20
LENGTHS = (9, 14, 25, 60, 200)
TRIES = 60


def share_of_steady(
    make: Callable[[random.Random, int], Sequence[float]], length: int, *, maximum: bool = False
) -> float:
    steady = 0
    for seed in range(TRIES):
        draw = random.Random(seed)
        values = [int(value * MIB) for value in make(draw, length)]
        steady += judge_growth(values, maximum=maximum) == "steady"
    return steady / TRIES


def noise(draw: random.Random, length: int) -> list[float]:
    return [8000 + draw.gauss(0, 300) for _ in range(length)]


def warm_up(draw: random.Random, length: int) -> list[float]:
    return [8000 - 3000 * 2.7 ** (-12 * step / length) + draw.gauss(0, 60) for step in range(length)]


def largest_so_far(draw: random.Random, length: int) -> list[float]:
    return list(accumulate((5000 + draw.expovariate(1 / 400) for _ in range(length)), max))


@pytest.mark.parametrize("length", LENGTHS)
def test_noise_and_warm_up_are_no_leak(length: int) -> None:
    assert share_of_steady(noise, length) <= 0.02
    assert share_of_steady(warm_up, length) <= 0.05
    assert share_of_steady(largest_so_far, length, maximum=True) <= 0.05


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rise", [0.004, 0.05, 1.0])
def test_a_steady_rise_is_a_leak_however_small_its_steps(length: int, rise: float) -> None:
    """Behind a warm-up too; the first two values are dropped before the rise is compared with its least."""
    values = [int(8000 * MIB * (1 + rise * 1.4 * step / length)) for step in range(length)]
    assert judge_growth(values) == judge_growth(values, maximum=True) == "steady"


@pytest.mark.parametrize(("length", "least"), [(60, 0.8), (200, 0.95)])
def test_a_leak_is_seen_through_noise(length: int, least: float) -> None:
    """Figures that scatter by a quarter of the whole rise."""

    def noisy(draw: random.Random, count: int) -> list[float]:
        return [8000 + 800 * step / count + draw.gauss(0, 200) for step in range(count)]

    assert share_of_steady(noisy, length) >= least


def test_few_figures_say_nothing() -> None:
    assert judge_growth([1, 2, 3, 4]) == ""


def test_a_rise_that_levels_off_is_told_as_jumps() -> None:
    assert judge_growth([4210, 5533, 5920, *[5920] * 11, *[6302] * 22], maximum=True) == "jumps"
