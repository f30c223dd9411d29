"""A history of memory -> leak, spike, caching, steady.

>>> history = [StepReading(step, seconds=step * 0.5, floor=4000 + 9 * step, peak=9000 + 9 * step) for step in range(60)]
>>> found = judge(history, limit=12000)
>>> found.kind, found.per_step, found.step_of_end
('leak', 9.0, 333)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from oomproof.diagnosis.growth import judge_growth, measure_scatter

LEAST = 20
"""steps below which nothing is said"""
MOST_BINS = 60
MOST = 20_000
"""readings that are kept"""
SPIKE = 1.15
"""times the usual peak: a guess at what is worth a word"""
GREW = 0.02
"""of the level: what a cache takes and keeps"""
WORKERS = (
    "it is the child processes that grow (data workers, as a rule): each keeps what its dataset caches, and a copy of "
    "every Python object that it touches; keep annotations in arrays, and nothing that was read"
)


@dataclass(frozen=True)
class StepReading:
    """Bytes around one step: the least before it and the most within it."""

    step: int
    seconds: float
    floor: int
    peak: int


@dataclass(frozen=True)
class Verdict:
    kind: str
    """leak, spike, caching, steady, or short where there are too few steps to tell"""
    why: str
    per_step: float = 0.0
    """bytes that stay behind a step, of a leak"""
    step_of_end: int | None = None
    """the step at which memory will run out, if it goes on so"""
    seconds_to_end: float | None = None
    spike_step: int | None = None
    by_workers: bool = False
    """it is the child processes that grow"""
    outlook: str = ""
    """the part of ``why`` that says what comes if it goes on"""

    def look_back(self) -> str:
        """Why, of a training that has ended."""
        return self.why.replace(self.outlook, "")


def keep_reading(history: list[StepReading], reading: StepReading) -> None:
    """Adds it; of very many, every second one is dropped."""
    history.append(reading)
    if len(history) > MOST:
        del history[1::2]


def judge(history: Sequence[StepReading], limit: int | None = None, *, ended: bool = False) -> Verdict:
    """``limit``: bytes at which memory runs out. ``ended``: nothing comes after these readings."""
    if len(history) < LEAST:
        count = "1 reading" if len(history) == 1 else f"{len(history)} readings"
        return Verdict("short", f"{count} of memory: fewer than {LEAST} say nothing about a trend")
    bins = _in_bins(history)
    floors = [floor for _, floor in bins]
    if judge_growth(floors) == "steady":
        return _leak(history, bins, limit)
    body = history[len(history) // 10 :]
    usual = median(each.peak for each in body)
    top = max(body, key=lambda each: each.peak)
    scatter = measure_scatter([each.peak for each in body])
    if top.peak > max(SPIKE * usual, usual + 8 * scatter) and _stands_out(history, top, ended):
        return Verdict(
            "spike",
            f"step {top.step} took {_size(top.peak)}, others about {_size(usual)}; between steps memory stays level: "
            "one batch is larger than the others",
            spike_step=top.step,
        )
    first, last = min(floors[: max(1, len(floors) // 10)]), min(floors[-max(1, len(floors) // 3) :])
    if last > first * (1 + GREW):
        return Verdict("caching", f"grew from {_size(first)} to {_size(last)} and stays there: caches, not a leak")
    return Verdict("steady", f"level at {_size(last)}, peaks of {_size(usual)}")


def _stands_out(history: Sequence[StepReading], top: StepReading, ended: bool) -> bool:
    """Whether it is higher than what came shortly before and after it: the end of a rise, and the beginning of what
    stays, are another phase of the training. One that was the end of the training had nothing after it."""
    at = history.index(top)
    before, after = history[max(0, at - LEAST) : at], history[at + 1 : at + 1 + LEAST]
    sides = (before,) if ended and len(after) < LEAST else (before, after)
    return all(near and top.peak > SPIKE * median(each.peak for each in near) for near in sides)


def _leak(history: Sequence[StepReading], bins: list[tuple[float, int]], limit: int | None) -> Verdict:
    slope = slope_of(bins[len(bins) // 10 :])
    last = history[-1]
    recent = max(each.peak for each in history[-LEAST:])
    why = f"{_size(slope)} more stay behind every step, {_size(bins[-1][1] - bins[0][1])} since step {history[0].step}"
    if limit is None or slope <= 0:
        return Verdict("leak", why, slope)
    left = max(0, int((limit - recent) / slope))
    pace = (last.seconds - history[0].seconds) / max(1, last.step - history[0].step)
    end = f"; {_size(limit)} will be reached at step {last.step + left}, in {_time(left * pace)}"
    return Verdict("leak", why + end, slope, last.step + left, left * pace, outlook=end)


def judge_host(host: Sequence[StepReading], workers: Sequence[StepReading], limit: int | None = None) -> Verdict:
    """``host``: of the main process and its children; ``workers``: of the children, read at the same times. A leak says
    which of them grow."""
    found = judge(host, limit)
    if found.kind != "leak":
        return found
    main = [
        StepReading(both.step, both.seconds, both.floor - part.floor, both.peak - part.peak)
        for both, part in zip(host, workers, strict=True)
    ]
    of_workers, of_main = _growth(workers), _growth(main)
    # Where one worker copies what it shared with the main process, each of both comes to have it alone.
    if of_workers >= 0.4 * (of_workers + of_main) and judge(workers).kind == "leak":
        return replace(found, why=f"{found.why}; {WORKERS}", by_workers=True)
    return found


def _growth(history: Sequence[StepReading]) -> float:
    """Bytes a step."""
    return slope_of([(each.step, each.floor) for each in history[len(history) // 10 :]][-MOST_BINS:])


def slope_of(points: Sequence[tuple[float, int]]) -> float:
    """The median of the slopes between all pairs (Theil and Sen): a third of the points may be anything."""
    slopes = [
        (later - earlier) / (then - when)
        for place, (when, earlier) in enumerate(points)
        for then, later in points[place + 1 :]
    ]
    return float(median(slopes)) if slopes else 0.0


def _in_bins(history: Sequence[StepReading]) -> list[tuple[float, int]]:
    """(step, least floor) of equal stretches. The least: what a garbage collector or an epoch's end gives back is no
    leak, so a saw's teeth must not look like one."""
    if len(history) <= MOST_BINS:
        return [(each.step, each.floor) for each in history]
    edges = [len(history) * part // MOST_BINS for part in range(MOST_BINS + 1)]
    stretches = (history[low:high] for low, high in pairwise(edges))
    lowest = (min(stretch, key=lambda each: each.floor) for stretch in stretches)
    return [(each.step, each.floor) for each in lowest]


def _size(nbytes: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes:.0f} bytes"


def _time(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
