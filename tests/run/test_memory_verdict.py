"""Leak, spike, caching or steady: histories of every kind, and long noise that must never be called a leak."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from oomproof.run.monitor.verdict import StepReading, Verdict, judge, slope_of

MIB = 1 << 20
BASE = 4000 * MIB


def history(floors: list[float], peaks: list[float] | None = None) -> list[StepReading]:
    peaks = peaks or [floor + 3000 * MIB for floor in floors]
    pairs = enumerate(zip(floors, peaks, strict=True))
    return [StepReading(step, step * 0.5, int(floor), int(peak)) for step, (floor, peak) in pairs]


def made(kind: str) -> list[StepReading]:
    rng = random.Random(kind)
    jitter = [rng.gauss(0, 4 * MIB) for _ in range(600)]
    level = [BASE + each for each in jitter]
    peaks = [7000 * MIB + each for each in jitter]
    peaks[450] = 9900 * MIB
    histories: dict[str, list[StepReading]] = {
        "leak": history([BASE + 9 * MIB * step for step in range(200)]),
        "leak in noise": history([floor + 0.5 * MIB * step for step, floor in enumerate(level)]),
        "slow leak": history([BASE + 0.1 * MIB * step for step in range(600)]),
        "leak after warm-up": history(
            [BASE + min(step, 20) * 50 * MIB + max(0, step - 40) * 2 * MIB for step in range(400)]
        ),
        "leak with teeth": history([BASE + 2 * MIB * step + (step % 25) * 8 * MIB for step in range(500)]),
        "spike": history(level, peaks),
        "warm-up": history([BASE * (1 - 0.5 * 0.8**step) for step in range(200)]),
        "saw-tooth": history([BASE + (step % 50) * 20 * MIB for step in range(600)]),
        "cache": history([BASE + 400 * MIB * (step > 30) + 300 * MIB * (step > 90) for step in range(400)]),
        "two phases": history([BASE + 1500 * MIB * (step > 150) + jitter[step] for step in range(300)]),
        "level": history(level),
        "exactly level": history([float(BASE)] * 300),
    }
    return histories[kind]


EXPECTED = {
    "leak": "leak",
    "leak in noise": "leak",
    "slow leak": "leak",
    "leak after warm-up": "leak",
    "leak with teeth": "leak",
    "spike": "spike",
    "warm-up": "caching",
    "saw-tooth": "steady",
    "cache": "caching",
    "two phases": "caching",
    "level": "steady",
    "exactly level": "steady",
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_histories_of_every_kind(kind: str) -> None:
    assert judge(made(kind)).kind == EXPECTED[kind]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["white", "slow", "bursts"])
def test_long_noise_is_not_a_leak(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    floors, state = [], 0.0
    for _ in range(10_000):
        state = 0.95 * state + rng.gauss(0, 10 * MIB)
        burst = rng.random() < 0.01
        floors.append(BASE + {"white": rng.gauss(0, 50 * MIB), "slow": state, "bursts": 500 * MIB * burst}[kind])
        if len(floors) in (50, 200, 1000, 5000):
            assert judge(history(floors)).kind != "leak", len(floors)
    assert judge(history(floors)).kind != "leak"


def test_when_it_will_end() -> None:
    found = judge(made("leak"), limit=12_000 * MIB)
    assert found.per_step == pytest.approx(9 * MIB)
    peak = 4000 + 9 * 199 + 3000
    assert found.step_of_end == 199 + (12_000 - peak) // 9
    assert found.seconds_to_end == pytest.approx((12_000 - peak) // 9 * 0.5)
    assert "9.00 MiB more stay behind every step" in found.why and "will be reached at step" in found.why


def test_the_batch_of_a_spike_is_named() -> None:
    assert judge(made("spike")).spike_step == 450


def test_few_steps_say_nothing() -> None:
    assert judge(made("leak")[:19]) == Verdict(
        "short", "19 readings of memory: fewer than 20 say nothing about a trend"
    )
    assert judge(made("leak")[:1]).why.startswith("1 reading of memory: ")  # host memory is not read at every step


def test_the_slope_stands_some_wild_points() -> None:
    points = [(step, 100 * step) for step in range(30)]
    for wild in (3, 11, 20, 27):
        points[wild] = (wild, 10**9)
    assert slope_of(points) == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("begun", [1, 30, 90])
def test_a_phase_that_has_begun_is_not_a_spike(begun: int) -> None:
    level = made("level")
    more = 1500 * MIB
    assert more > 0.2 * level[0].peak
    later = [StepReading(600 + each.step, 0, each.floor + more, each.peak + more) for each in level]
    assert judge(level + later[:begun]).kind in ("steady", "caching")
    if begun == 1:  # and then it died
        assert judge(level + later[:begun], ended=True).kind == "spike"
    one = replace(later[0], floor=level[0].floor)
    assert judge([*level, one, *level[:1]]).kind == "spike"
