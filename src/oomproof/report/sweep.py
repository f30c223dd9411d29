"""The same job with one setting swept: one row a value, and the largest value that fits."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from oomproof.memory.forecast import Forecast
from oomproof.memory.sweep import Sweep
from oomproof.report.bars import Chart, Times
from oomproof.report.sizes import gib, number, value
from oomproof.report.terminal import STYLES
from oomproof.report.verdict import describe_tightness


def report(sweep: Sweep) -> RenderableType:
    first = sweep.rows[0][1]
    with_ram = first.ram is not None  # then columns for it, in the place of those that lead to the device's
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(sweep.name, justify="right", no_wrap=True, style="bold")
    inside, host = ((), ("host RAM", "at worst")) if with_ram else (("allocated", "reserved"), ())
    for heading in (*inside, "device", "at worst", *host):
        table.add_column(heading, justify="right", no_wrap=True)
    timed = any(forecast.step_seconds is not None for _, forecast in sweep.rows)
    if timed:
        table.add_column("step, s", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for setting, forecast in sweep.rows:
        figures = [forecast.on_device.expected, forecast.on_device.high]
        if with_ram:
            figures += [forecast.host.expected, forecast.host.high]
        else:
            figures[:0] = [forecast.allocated.expected, forecast.reserved.expected]
        outcome = Text(describe_outcome(forecast), style=STYLES[forecast.outcome])
        seconds = forecast.step_seconds
        step = [f"{seconds.expected:.2g}" if seconds is not None else ""] if timed else []
        table.add_row(value(setting), *(number(nbytes) for nbytes in figures), *step, outcome)
    style = STYLES["fits" if sweep.fitting else "does not fit"]
    ram = f" with {gib(first.ram)} of host RAM" if first.ram is not None else ""
    title = f"{first.job} on {first.device.name}{ram}; figures in GiB\n"
    refused = [Text(each) for each in describe_refused(sweep)]
    return Group(Text(title), table, *refused, *_plot(sweep), "", Text(conclusion(sweep), style=style))


def describe_refused(sweep: Sweep) -> list[str]:
    return [f"{sweep.name} {value(setting)} cannot be trained: {why}" for setting, why in sweep.refused]


def _plot(sweep: Sweep) -> list[RenderableType]:
    """Memory and time against resolution, where that is what is swept: each grows in its own way."""
    rows = sweep.rows
    first = rows[0][1]
    if len(rows) < 2 or first.settings.name_of("image size") != sweep.name:
        return []
    memory = [(value(setting), forecast.on_device.expected) for setting, forecast in rows]
    found: list[RenderableType] = ["", "device, GiB, and its share of the budget", Chart(memory, first.budget)]
    if all(forecast.step_seconds is not None for _, forecast in rows):
        found += ["", "time of a step, against the first row", Times(_times(sweep))]
    return found


def _times(sweep: Sweep) -> list[tuple[str, float]]:
    seconds = [
        (value(setting), forecast.step_seconds.expected)
        for setting, forecast in sweep.rows
        if forecast.step_seconds is not None
    ]
    return [(name, each / seconds[0][1] if seconds[0][1] else 1.0) for name, each in seconds]


def describe_outcome(forecast: Forecast) -> str:
    """Says where it fails, if only the host does."""
    if forecast.on_device_outcome == "fits" != forecast.host_outcome:
        return f"{forecast.outcome} (host RAM)"
    return forecast.outcome


def conclusion(sweep: Sweep) -> str:
    first = sweep.rows[0][1]
    if not sweep.fitting:
        return f"None of these values of {sweep.name} fits {first.device.name}{_what_is_short(sweep)}."
    if sweep.largest is None:
        return f"{first.device.name} fits {sweep.name}: {', '.join(value(setting) for setting in sweep.fitting)}."
    best = next(forecast for setting, forecast in sweep.rows if setting == sweep.largest)
    figures = f"{number(best.on_device.high)} of {gib(best.budget)} at worst{describe_tightness(best)}"
    if best.ram is not None:
        figures += f", and {number(best.host.high)} of {gib(best.ram)} host RAM"
    return f"The largest {sweep.name} that fits {first.device.name} is {value(sweep.largest)}: {figures}."


def _what_is_short(sweep: Sweep) -> str:
    """Where the device has room for some value, it is the host that has none."""
    on_device = [forecast for _, forecast in sweep.rows if forecast.on_device_outcome == "fits"]
    if not on_device:
        return ""
    least = min(on_device, key=lambda forecast: forecast.host.high)
    takes = f"{number(least.host.high)} of {gib(least.ram or 0)} host RAM at worst"
    return f": the device has room, but the least of them takes {takes}"
