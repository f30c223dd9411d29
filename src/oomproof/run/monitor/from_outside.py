"""Readings of a process whose steps cannot be seen: growth is called a leak only once it has outlasted warming up.

>>> history = [StepReading(count, seconds=0.5 * count, floor=(4000 + 9 * count) << 20, peak=0) for count in range(500)]
>>> judge_from_outside(history[:60]).kind, judge_from_outside(history).kind
('growing', 'leak')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from oomproof.run.monitor.verdict import LEAST, StepReading, Verdict, judge, judge_host

WARM_UP = 120.0
"""seconds. Loading PyTorch took 24 s on a busy machine; four healthy workers grew evenly by a fifth, for 100 s, and for
330 s on a busier one, which is then called a leak: longer for all would be late for those that leak"""
GOES_ON = 0.5
"""of the pace before: what warms up grows ever more slowly, a leak by about as much"""
LEAST_RISE = 0.05
"""of the level, after warming up: batches that wait in a healthy loader's queues made up to 0.04 in 200 s"""
LEAST_BYTES = 64 << 20
"""after warming up. One arena of glibc's malloc may keep as much: a healthy training with four workers grew by 39 MiB
in its first 80 s"""


def judge_from_outside(
    history: Sequence[StepReading],
    limit: int | None = None,
    *,
    workers: Sequence[StepReading] | None = None,
    warm_up: float = WARM_UP,
    ended: bool = False,
) -> Verdict:
    """As ``judge`` (with ``workers``: ``judge_host``), but a leak is ``growing`` until it goes on for as long again as
    warming up may take. The first ``warm_up`` seconds of the readings may be anything."""
    found = judge(history, limit, ended=ended)
    if found.kind != "leak":
        return found
    if goes_on(history, found.per_step, warm_up):  # only then is it told who grows, and what to change
        return found if workers is None else judge_host(history, workers, limit)
    return _wait(found, ended)


def judge_from_inside(
    host: Sequence[StepReading], workers: Sequence[StepReading], limit: int | None, warm_up: float
) -> Verdict:
    """As ``judge_host``, but where there are child processes, whose steps are not the training's, growth must outlast
    warming up: who of them grows is not always clear."""
    found = judge_host(host, workers, limit)
    with_workers = any(each.floor for each in workers)
    if found.kind == "leak" and with_workers and not goes_on(host, found.per_step, warm_up):
        return _wait(judge(host, limit))
    return found


def _wait(found: Verdict, ended: bool = False) -> Verdict:
    words = (
        "it ended too soon to tell a leak from warming up"
        if ended
        else "it may be warming up, and is a leak if it goes on"
    )
    return replace(found, kind="growing", why=f"{found.why}; {words}")


def goes_on(history: Sequence[StepReading], per_step: float, warm_up: float) -> bool:
    """Whether memory leaks after the first ``warm_up`` seconds too, at about the same pace, for at least as long."""
    later = [each for each in history if each.seconds - history[0].seconds > warm_up]
    if len(later) < LEAST or later[-1].seconds - later[0].seconds < warm_up:
        return False
    found = judge(later)
    rise = found.per_step * (later[-1].step - later[0].step)
    least = max(LEAST_BYTES, LEAST_RISE * later[0].floor)
    return found.kind == "leak" and found.per_step >= GOES_ON * per_step and rise >= least


def count_with_workers(workers: Sequence[StepReading]) -> int:
    """How many readings came before a process that mostly has workers was without them: between two epochs, and on its
    way out, which took a minute on a busy machine. What is given back then is no trend."""
    held = [each.floor for each in workers if each.floor]
    count = len(workers)
    if len(held) > count / 2:
        while workers[count - 1].floor < median(held) / 2:
            count -= 1
    return count


class News:
    """Which verdicts are worth a line, of one at every reading: what is wrong, and that it is not any more."""

    def __init__(self) -> None:
        self._told = ""
        self._leak: Verdict | None = None
        self._level = 0
        """readings in a row without growth"""

    def is_news(self, found: Verdict) -> bool:
        kind = found.kind
        self._level = self._level + 1 if kind in ("steady", "caching") else 0
        if kind == "growing":
            news = not self._told
        elif self._level:
            news = self._told in ("growing", "leak") and self._level >= LEAST
        else:
            news = kind in ("leak", "spike") and kind != self._told
        if news:
            self._told = kind
        if kind == "leak":
            self._leak = found
        return news

    def sum_up(self, found: Verdict) -> Verdict:
        """The last word, from the verdict on all readings: a leak that was told stands until it was said to be over. A
        training that pauses between two epochs, or is on its way out, is level for a moment."""
        if self._told == "leak" and self._leak is not None and found.kind in ("steady", "caching", "growing"):
            return self._leak
        return found
