"""Horizontal bars: block characters where the terminal has them, ``#`` where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from oomproof.report.sizes import number, shorten

EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Chart:
    """One bar a row: name, GiB, share of ``whole``. As wide as the console lets it be."""

    rows: Sequence[tuple[str, int]]
    whole: int
    style: str = "cyan"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        names = min(max((len(name) for name, _ in self.rows), default=0), max(14, min(60, width - 30)))
        length = max(4, min(40, width - names - 16))
        grid = Table.grid(padding=(0, 2), pad_edge=False)
        grid.add_column(no_wrap=True, width=names)
        grid.add_column(justify="right", no_wrap=True, width=6)
        grid.add_column(justify="right", no_wrap=True, width=4, style="dim")
        grid.add_column(no_wrap=True, width=length)
        blocks = can_print(console, EIGHTHS)
        most = max((nbytes for _, nbytes in self.rows), default=0)
        for name, nbytes in self.rows:
            share = nbytes / self.whole if self.whole else 0.0
            grid.add_row(
                shorten(name, names),
                number(nbytes),
                f"{share:.0%}" if share >= 0.005 or not nbytes else "<1%",
                Text(bar(nbytes / most if most else 0.0, length, blocks), style=self.style),
            )
        yield grid


@dataclass(frozen=True)
class Times:
    """One bar a row: name, how many times the first row's time."""

    rows: Sequence[tuple[str, float]]
    style: str = "magenta"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = max((len(name) for name, _ in self.rows), default=0)
        length = max(4, min(40, options.max_width - names - 16))
        grid = Table.grid(padding=(0, 2), pad_edge=False)
        most = max((times for _, times in self.rows), default=1.0)
        for name, times in self.rows:
            drawn = bar(times / most if most else 0.0, length, can_print(console, EIGHTHS))
            grid.add_row(name, Text(f"{times:.2f} x", justify="right"), Text(drawn, style=self.style))
        yield grid


def bar(share: float, length: int, blocks: bool) -> str:
    """
    >>> bar(0.5, 4, blocks=False)
    '##'
    """
    eighths = round(min(1.0, max(0.0, share)) * length * 8)
    if not blocks:
        return "#" * max(round(eighths / 8), min(1, eighths))
    full, rest = divmod(max(eighths, 1 if share > 0 else 0), 8)
    return EIGHTHS[8] * full + (EIGHTHS[rest] if rest else "")


def can_print(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
