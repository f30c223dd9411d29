"""How memory went: steadily up, up in jumps, or level. Noise and the growth of the first steps are not leaks.

>>> judge_growth([4000 + 9 * step for step in range(30)])
'steady'
>>> judge_growth([4000, 5200, 5600] + [5700] * 27)
'jumps'
>>> judge_growth([5700 + 40 * (step % 3) for step in range(30)])
'level'
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

LEAST = 5
"""figures below which nothing is said"""
SMALLEST = 0.003
"""of the level: a rise below it is not told from rounding"""
NOTABLE = 0.05
"""of the level: a rise that is worth a word even if it was not steady"""
LEAST_FOR_NOISE = 16
SURE = 4.0
"""times the scatter of the figures: a rise that chance does not make"""


def judge_growth(values: Sequence[int], *, maximum: bool = False) -> str:
    """steady, jumps or level; empty where there are too few. ``maximum``: the figures are running maxima."""
    if len(values) < LEAST:
        return ""
    # The first steps fill caches and pools in every training.
    body = values[max(2, len(values) // 10) :] if len(values) >= 12 else values
    levels = _levels(body)
    rise = levels[-1] - levels[0]
    if _is_steady(body, levels, maximum) or (not maximum and _is_steady_within_noise(body)):
        return "steady"
    whole = max(values) - min(values[: max(1, len(values) // 8)])
    scatter = measure_scatter(values)
    if whole > max(NOTABLE * values[0], 6 * scatter) and rise >= 0 and max(levels) - values[0] > whole / 2:
        return "jumps"
    return "level"


def _is_steady(body: Sequence[int], levels: Sequence[int], maximum: bool) -> bool:
    rise = levels[-1] - levels[0]
    each = max(1, len(body) // len(levels))
    if rise < max(SMALLEST * max(levels[0], 1), SURE * measure_scatter(body) * (2 / each) ** 0.5):
        return False
    ups = [after - before for before, after in pairwise(levels)]
    # A leak goes on by about equal amounts; the largest batch so far comes in few steps, ever more seldom.
    if sum(up > 0 for up in ups) < len(ups) - (1 if len(ups) > 3 else 0):
        return False
    if max(ups) > (0.5 if len(ups) > 3 else 0.62) * rise:
        return False
    third = max(1, len(ups) // 3)
    if sum(ups[-third:]) < (0.2 if maximum else 0.14) * rise * third * 3 / len(ups):
        return False
    return not maximum or _rises_all_along(body)


def _rises_all_along(maxima: Sequence[int]) -> bool:
    """Whether a running maximum goes up in most stretches of the run; the largest batch so far comes in few of them."""
    parts = min(20, max(4, len(maxima) // 3))
    edges = [(len(maxima) - 1) * part // parts for part in range(parts + 1)]
    return sum(maxima[high] > maxima[low] for low, high in pairwise(edges)) >= 0.55 * parts


def _is_steady_within_noise(body: Sequence[int]) -> bool:
    """Single figures go up and down, yet later ones are higher far more often than chance allows (Mann and Kendall)."""
    thinned = body[:: len(body) // 200 + 1]
    count = len(thinned)
    if count < LEAST_FOR_NOISE:
        return False
    signs = 0
    for at, earlier in enumerate(thinned):
        signs += sum((later > earlier) - (later < earlier) for later in thinned[at + 1 :])
    if signs / (count * (count - 1) * (2 * count + 5) / 18) ** 0.5 < SURE:
        return False
    third = len(body) // 3
    begin, middle, end = (median(body[low:high]) for low, high in ((0, third), (third, 2 * third), (2 * third, None)))
    return end - begin >= SMALLEST * max(begin, 1) and 0.3 <= (end - middle) / (end - begin) <= 0.7


def _levels(values: Sequence[int]) -> list[int]:
    """The medians of equal parts."""
    parts = 6 if len(values) >= 18 else 4 if len(values) >= 8 else len(values)
    edges = [len(values) * part // parts for part in range(parts + 1)]
    return [median(values[low:high]) for low, high in pairwise(edges)]


def measure_scatter(values: Sequence[int]) -> float:
    """Standard deviation about whatever line the figures follow, from second differences (0 for a straight line)."""
    if len(values) < 5:
        return 0.0
    bends = [abs(a - 2 * b + c) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return median(bends) / 1.65


def median(values: Sequence[int]) -> int:
    """The middle one; the statistics module would take a tenth of the command's start to load."""
    return sorted(values)[len(values) // 2]


def take_last_run(values: Sequence[int]) -> int:
    """Where the last run begins: behind a fall to less than half, as when a program starts anew."""
    start = 0
    most = values[0] if values else 0
    for place, value in enumerate(values):
        if value < most / 2:
            start, most = place, value
        most = max(most, value)
    return start
