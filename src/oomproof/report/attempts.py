"""The log of a search, as ``oomproof fit --debug`` shows it below the plan."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from oomproof.plan.plan import Attempt
from oomproof.report.changes import times, with_reason
from oomproof.report.sizes import number
from oomproof.report.terminal import section


def report(attempts: Sequence[Attempt]) -> RenderableType:
    return Group(
        *section(
            "What the search tried, in order (GiB at worst and time per image: estimated -> traced)", _table(attempts)
        )
    )


def _table(attempts: Sequence[Attempt]) -> RenderableType:
    if not attempts:
        return ""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", justify="right", no_wrap=True, style="dim")
    table.add_column("tried", overflow="fold")
    table.add_column("how", no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for place, each in enumerate(attempts, 1):
        device = _both(*(None if size is None else number(size) for size in (each.device_estimated, each.device)))
        time = _both(*(None if part is None else times(part) for part in (each.time_estimated, each.time)))
        table.add_row(str(place), with_reason(Text(each.tried), each.reason), each.how, device, time, each.outcome)
    return table


def _both(estimated: str | None, traced: str | None) -> str:
    """
    >>> _both("1.20", "1.31"), _both(None, "1.31"), _both("1.20", None), _both(None, None)
    ('1.20 -> 1.31', '1.31', '1.20 -> ?', '')
    """
    return (traced or "") if estimated is None else f"{estimated} -> {traced or '?'}"
