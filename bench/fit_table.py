"""What bench/fit.py found, as a table, and held against its aims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

OURS = "oomproof"
NOISE = 0.03
"""two speeds that differ by less than this part cannot be told apart on a machine like this"""
SOONER = 10
"""times sooner than trial runs: the aim for the answer"""
SEARCHES = ("halving", "accelerate", "lightning")
"""rivals that find their answer by trial runs"""


@dataclass(frozen=True)
class Row:
    """One method on one job under one budget."""

    job: str
    share: int
    """of the room above weights, gradients and state, in percent"""
    budget: int
    method: str
    settings: str
    batch: int = 0
    """effective: images in an update"""
    steps: tuple[float, ...] = field(default=())
    """seconds of a step in each turn after the warm-up"""
    answer: float = 0.0
    """seconds until the settings were known"""
    error: str = ""
    """why there is no figure: it did not run inside the limit, or is not installed"""

    @property
    def fits(self) -> bool:
        return bool(self.steps) and not self.error

    @property
    def speed(self) -> float:
        """Images a second."""
        return self.batch / median(self.steps) if self.steps else 0.0


def budget_of(peak: int, floor: int, share: int) -> int:
    """``share`` percent of what lies above the floor, on top of it.

    >>> budget_of(1000, 200, 50)
    600
    """
    return floor + (peak - floor) * share // 100


def changed(settings: Mapping[str, Any]) -> str:
    """Settings in the form of the command line; long lists of modules are counted."""
    words = []
    for name, value in settings.items():
        modules = str(value).split(",")
        many = name == "checkpoint" and len(modules) > 2
        words.append(f"{name}={len(modules)} modules" if many else f"{name}={value}")
    return " ".join(words) or "as it is"


def ours_of(rows: Iterable[Row], row: Row) -> Row | None:
    """Our row on the same job under the same budget."""
    return next((each for each in rows if (each.job, each.share, each.method) == (row.job, row.share, OURS)), None)


def ratio(rows: Sequence[Row], row: Row) -> float:
    """Our images per second as a multiple of this row's; 0 where there is nothing to compare. Steps of one turn are
    held against each other, so that a machine that is now quicker, now slower does not matter."""
    ours = ours_of(rows, row)
    if ours is None or not ours.fits or not row.fits:
        return 0.0
    turns = zip(ours.steps, row.steps, strict=True)
    return median(theirs / row.batch / (mine / ours.batch) for mine, theirs in turns)


HEAD = ("job", "budget", "method", "settings", "batch", "images/s", "ours is", "answer", "fits")


def table(rows: Sequence[Row]) -> str:
    lines = [HEAD, *(_cells(rows, row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def markdown(rows: Sequence[Row]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *(_cells(rows, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(rows: Sequence[Row], row: Row) -> tuple[str, ...]:
    against = ratio(rows, row) if row.method != OURS else 0.0
    return (
        row.job,
        f"{row.share} % {row.budget / 2**20:.0f} MiB",
        row.method,
        row.settings,
        str(row.batch or "-"),
        f"{row.speed:.2f}" if row.fits else "-",
        f"{against:.2f}x" if against else "-",
        f"{row.answer:.1f} s" if row.answer else "-",
        "yes" if row.fits else f"no: {row.error}" if row.error else "not timed",
    )


def aims(rows: Sequence[Row]) -> dict[str, tuple[bool, str]]:
    """Each aim: whether it is met, and the figures."""
    ours = [row for row in rows if row.method == OURS]
    inside = [row for row in ours if row.fits]
    compared = [(row, ratio(rows, row)) for row in rows if row.method != OURS and ratio(rows, row)]
    whole = {row.job: row.batch for row in ours}
    sooner = [(row, row.answer / mine.answer) for row, mine in _searched(rows)]
    late = [_named(row, value) for row, value in sooner if value < SOONER]
    return {
        "every plan ran inside its budget": (len(inside) == len(ours), _count(len(inside), len(ours), _failed(ours))),
        "never slower per image than a rival that keeps the batch": _never_slower(
            [(row, value) for row, value in compared if row.batch == whole[row.job]]
        ),
        "never slower per image than a rival with a smaller batch, which is another training": _never_slower(
            [(row, value) for row, value in compared if row.batch != whole[row.job]]
        ),
        f"the answer {SOONER} times sooner than trial runs": (
            not late,
            _count(len(sooner) - len(late), len(sooner), late)
            + (f"; median {median(value for _, value in sooner):.1f} times" if sooner else ""),
        ),
    }


def _never_slower(compared: Sequence[tuple[Row, float]]) -> tuple[bool, str]:
    slower = [_named(row, value) for row, value in compared if value < 1 - NOISE]
    even = sum(1 - NOISE <= value < 1 for _, value in compared)
    text = _count(len(compared) - len(slower), len(compared), slower)
    if compared:
        values = sorted(value for _, value in compared)
        text += f"; {values[0]:.2f} to {values[-1]:.2f}, median {median(values):.2f}"
    return not slower, text + (f" ({even} slower by less than {NOISE:.0%}, which is noise)" if even else "")


def _searched(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    pairs = [(row, ours_of(rows, row)) for row in rows if row.method in SEARCHES and row.answer]
    return [(row, mine) for row, mine in pairs if mine is not None and mine.answer]


def _failed(ours: Sequence[Row]) -> list[str]:
    return [f"{row.job} at {row.share} %: {row.error}" for row in ours if not row.fits]


def _named(row: Row, value: float) -> str:
    return f"{row.job} at {row.share} % {row.method} {value:.2f}x"


def _count(good: int, every: int, bad: Sequence[str]) -> str:
    return f"{good} of {every}" + (f"; not {', '.join(bad)}" if bad else "")


def document(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """The same for machines."""
    return {
        **about,
        "rows": [
            {**asdict(row), "fits": row.fits, "images_per_second": row.speed, "ours_is": ratio(rows, row)}
            for row in rows
        ],
        "aims": {name: {"met": met, "figures": figures} for name, (met, figures) in aims(rows).items()},
    }
