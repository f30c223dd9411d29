"""Without steps to see: warming up is told from a leak, and what is given back between epochs is no trend."""

from __future__ import annotations

import math
import random

import pytest

from oomproof.run.monitor.from_outside import WARM_UP, News, count_with_workers, judge_from_outside
from oomproof.run.monitor.verdict import StepReading, Verdict, judge

MIB = 1 << 20
BASE = 400.0
EVERY = 10


def read(floors: list[float], every: float = 1.0) -> list[StepReading]:
    """``floors``: MiB."""
    rng = random.Random(len(floors))
    return [
        StepReading(count, every * count, *(2 * [int(MIB * (floor + rng.gauss(0, 0.3))) if floor else 0]))
        for count, floor in enumerate(floors, 1)
    ]


def read_kinds(history: list[StepReading]) -> list[str]:
    """The verdicts on the way, as in ``oomproof watch``."""
    return [judge_from_outside(history[:count]).kind for count in range(0, len(history) + 1, EVERY)]


LEVEL = {
    "loading a framework, then level": [BASE * min(1.0, second / 25) for second in range(1, 900)],
    "workers that grow evenly": [BASE + min(second, 100) for second in range(900)],
    "workers that grow in every epoch, and end with it": [BASE + second % 100 for second in range(900)],
    "a cache that is filled": [BASE + 100 * (1 - math.exp(-second / 60)) for second in range(900)],
    "a small cache that is filled ever so evenly": [BASE + min(0.15 * second, 60) for second in range(900)],
    "level": [BASE] * 900,
}
LEAKS = {
    "a leak": [BASE + 4 * second for second in range(400)],
    "a slow leak": [BASE + 0.2 * second for second in range(900)],
    "a leak after loading": [BASE * min(1.0, second / 25) + 3 * second for second in range(1, 900)],
    "a leak in every epoch": [BASE + second % 100 + second for second in range(900)],
}


@pytest.mark.parametrize("kind", LEVEL)
def test_what_warms_up_is_never_called_a_leak(kind: str) -> None:
    kinds = read_kinds(read(LEVEL[kind]))
    assert "leak" not in kinds and kinds[-1] in ("steady", "caching")


def test_warming_up_was_called_a_leak() -> None:
    history = read(LEVEL["loading a framework, then level"][:24])
    assert judge(history).kind == "leak" and judge_from_outside(history).kind == "growing"


@pytest.mark.parametrize("kind", LEAKS)
def test_what_goes_on_is_called_a_leak(kind: str) -> None:
    kinds = read_kinds(read(LEAKS[kind]))
    assert kinds[-1] == "leak"
    seconds = EVERY * kinds.index("leak")
    assert 2 * WARM_UP <= seconds <= 4 * WARM_UP, seconds


def test_a_leak_of_a_mib_in_ten_seconds_is_told_after_thirteen_minutes() -> None:
    kinds = read_kinds(read([BASE + 0.1 * second for second in range(900)]))
    assert 740 <= EVERY * kinds.index("leak") <= 780


def test_a_leak_says_when_memory_ends_and_growing_that_it_is_not_sure() -> None:
    history = read(LEAKS["a leak"])
    assert judge_from_outside(history, limit=16 << 30).why.count("will be reached at step") == 1
    assert "may be warming up" in judge_from_outside(history[:40]).why
    assert judge_from_outside(history[:40], warm_up=10).kind == "leak"


def test_nothing_is_foretold_of_a_process_that_has_ended() -> None:
    history = read(LEAKS["a leak"])
    leak = judge_from_outside(history, limit=16 << 30, ended=True)
    assert "will be reached" in leak.why and leak.look_back() == judge_from_outside(history, ended=True).why
    short = judge_from_outside(history[:40], limit=16 << 30, ended=True).look_back()
    assert short.endswith("since step 1; it ended too soon to tell a leak from warming up")


def test_many_readings_in_little_time_are_not_enough() -> None:
    floors = [BASE + second for second in range(400)]
    assert judge_from_outside(read(floors, every=0.1)).kind == "growing"
    assert judge_from_outside(read(floors, every=1.0)).kind == "leak"


def test_a_process_without_its_workers_is_not_judged() -> None:
    running, ending = LEAKS["a leak"], [200.0] * 60
    history, workers = read(running + ending), read([floor - 300 for floor in running] + [20.0] + [0.0] * 59)
    count = count_with_workers(workers)
    assert count == len(running)
    assert "-" in judge_from_outside(history).why and "-" not in judge_from_outside(history[:count]).why
    assert count_with_workers(workers[:count]) == count


def test_a_child_that_was_there_for_a_moment_is_not_a_worker() -> None:
    history = [StepReading(count, float(count), MIB * (count in (3, 4)), 0) for count in range(50)]
    assert count_with_workers(history) == 50 and count_with_workers([]) == 0


def tell(kinds: list[str]) -> list[str]:
    news = News()
    return [kind for kind in kinds if news.is_news(Verdict(kind, ""))]


def test_only_news_is_told() -> None:
    assert tell(["short"] * 20 + ["steady"] * 90) == []
    assert tell(["growing"] * 30 + ["caching", "growing"] * 5 + ["steady"] * 30 + ["growing"]) == ["growing", "steady"]
    assert tell(["growing"] * 30 + ["leak"] * 30 + ["caching", "leak", "growing"] * 9) == ["growing", "leak"]
    assert tell(["leak"] + ["caching"] * 30 + ["leak"] * 3) == ["leak", "caching", "leak"]
    assert tell(["steady"] * 30 + ["spike"] * 9 + ["growing", "leak"]) == ["spike", "leak"]


@pytest.mark.parametrize(
    ("kinds", "last"),
    [
        (["growing"] * 30 + ["leak"] * 30 + ["caching"] * 19, "leak"),
        (["leak"] * 30 + ["growing"], "leak"),
        (["leak"] * 30 + ["steady"] * 20, "steady"),
        (["leak"] * 30 + ["steady"] * 20 + ["growing"], "growing"),
        (["growing"] * 30 + ["caching"], "caching"),
        (["leak"] * 30 + ["spike"], "spike"),
    ],
)
def test_the_last_word_is_that_of_the_last_line(kinds: list[str], last: str) -> None:
    """A training that is level for a few readings at its end has not stopped leaking."""
    news = News()
    for place, kind in enumerate(kinds):
        news.is_news(Verdict(kind, f"reading {place}"))
    found = news.sum_up(Verdict(kinds[-1], "all readings"))
    assert found.kind == last
    assert (found.why == "all readings") == (last != "leak"), "a leak says what it said when it was last seen"
