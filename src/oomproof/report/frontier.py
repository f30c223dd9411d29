"""Memory against time per image: one bar a point, the budget marked, the chosen one too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from oomproof.plan.plan import Point
from oomproof.report.bars import EIGHTHS, bar, can_print
from oomproof.report.changes import times
from oomproof.report.sizes import number

MOST = 10
"""points that are drawn; more say nothing new"""
WIDEST = 2.5
"""the scale ends at so many times the budget, else a job ten times too large would leave no room to see the others"""


@dataclass(frozen=True)
class Frontier:
    """Points from the quickest to the thriftiest. As wide as the console lets it be."""

    points: Sequence[Point]
    budget: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = thin_points(sorted(self.points, key=lambda point: (point.time, -point.device)))
        blocks = can_print(console, EIGHTHS + "│►")
        length = max(8, min(32, options.max_width // 3 - 4))
        end = min(max([self.budget, *(point.device for point in shown)]), round(WIDEST * self.budget)) or 1
        grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        grid.add_column("", no_wrap=True, width=1)
        grid.add_column("time/image", justify="right", no_wrap=True)
        grid.add_column("at worst", justify="right", no_wrap=True)
        mark = "│" if blocks else "|"
        grid.add_column(f"GiB, {mark} is {number(self.budget)}", no_wrap=True, width=max(length, 16))
        grid.add_column("changes", overflow="fold")
        for point in shown:
            grid.add_row(
                ("►" if blocks else "*") if point.chosen else "",
                times(point.time),
                number(point.device),
                self._bar(point, end, length, blocks),
                point.changes or "as it is",
                style="bold" if point.chosen else "",
            )
        yield grid

    def _bar(self, point: Point, end: int, length: int, blocks: bool) -> Text:
        text = bar(point.device / end, length, blocks)
        if point.device > end:
            text = text[:-1] + ">"
        at = min(length - 1, round(self.budget / end * length))
        text = text.ljust(length)
        over = point.device > self.budget
        drawn = Text(text[:at], style="cyan")
        drawn.append("│" if blocks else "|", style="bold")
        drawn.append(text[at + 1 :], style="red" if over else "")
        return drawn


def thin_points(points: Sequence[Point]) -> list[Point]:
    """At most MOST points: the ends, the chosen one, and others evenly between."""
    if len(points) <= MOST:
        return list(points)
    last = len(points) - 1
    kept = {round(place * last / (MOST - 1)) for place in range(MOST)}
    for chosen in (index for index, point in enumerate(points) if point.chosen and index not in kept):
        kept.remove(min(kept - {0, last}, key=lambda index: abs(index - chosen)))
        kept.add(chosen)
    return [points[index] for index in sorted(kept)]
