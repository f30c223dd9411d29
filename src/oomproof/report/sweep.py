"""The same job with one setting swept: one row a value, and the largest value that fits."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from oomproof.memory.sweep import Sweep
from oomproof.report.sizes import gib, number, value
from oomproof.report.terminal import STYLES
from oomproof.report.verdict import empties_cache


def report(sweep: Sweep) -> RenderableType:
    first = sweep.rows[0][1]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(sweep.name, justify="right", no_wrap=True, style="bold")
    for heading in ("allocated", "reserved", "device", "at worst"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for setting, forecast in sweep.rows:
        figures = (forecast.allocated.expected, forecast.reserved.expected, forecast.on_device.expected)
        table.add_row(
            value(setting),
            *(number(nbytes) for nbytes in (*figures, forecast.on_device.high)),
            Text(forecast.outcome, style=STYLES[forecast.outcome]),
        )
    style = STYLES["fits" if sweep.fitting else "does not fit"]
    title = f"{first.job} on {first.device.name}; figures in GiB\n"
    return Group(Text(title), table, "", Text(conclusion(sweep), style=style))


def conclusion(sweep: Sweep) -> str:
    first = sweep.rows[0][1]
    if not sweep.fitting:
        return f"None of these values of {sweep.name} fits {first.device.name}."
    if sweep.largest is None:
        return f"{first.device.name} fits {sweep.name}: {', '.join(value(setting) for setting in sweep.fitting)}."
    best = next(forecast for setting, forecast in sweep.rows if setting == sweep.largest)
    cache = ", with cached blocks given back" if empties_cache(best) else ""
    figures = f"{number(best.on_device.high)} of {gib(best.budget)} at worst{cache}"
    return f"The largest {sweep.name} that fits {first.device.name} is {value(sweep.largest)}: {figures}."
