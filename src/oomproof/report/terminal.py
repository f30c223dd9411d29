"""One Forecast as text: verdict, why, next; then the figures, what holds them, and what is not counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from oomproof.memory.forecast import Forecast, Range, Seconds
from oomproof.report.advice import next_steps
from oomproof.report.bars import Chart
from oomproof.report.epoch import batches
from oomproof.report.sizes import gib, named, number
from oomproof.report.verdict import PLURALS, moment, verdict, why
from oomproof.sources.job import Role, Setting, Settings

STYLES = {"fits": "bold green", "at risk": "bold yellow", "does not fit": "bold red"}
OWNERS = 8
ALWAYS_SHOWN: tuple[Role, ...] = ("batch", "image size", "precision")


def report(forecast: Forecast, settings: Sequence[Setting]) -> RenderableType:
    """``settings`` are the ones the job has: the advice speaks only of those."""
    return Group(
        _opening(forecast, settings),
        *(() if forecast.epoch is None else section("Batches of the data", batches(forecast.epoch))),
        *section("Parts of the run, GiB", parts(forecast)),
        *section("Memory of a training step, GiB" if forecast.validation else "Memory, GiB", levels(forecast)),
        *section("On the device at the peak, GiB", Chart(_kinds(forecast), forecast.on_device.expected)),
        *section("Modules that hold the most at the peak, GiB", Chart(_owners(forecast), forecast.allocated.expected)),
        *section("Most in each phase, GiB", Chart(list(forecast.phases.items()), forecast.allocated.expected)),
        *section("Notes", bullets([*forecast.notes, *_more_notes(forecast)])),
        *section("Not counted", bullets(forecast.not_counted)),
    )


def _opening(forecast: Forecast, settings: Sequence[Setting]) -> RenderableType:
    sentence, steps = next_steps(forecast, settings)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("Verdict", Text(verdict(forecast), style=STYLES[forecast.outcome]))
    grid.add_row("Why", why(forecast))
    grid.add_row("Next", sentence)
    for step in steps:
        grid.add_row("", Text.assemble((step.option, "bold cyan"), "  ", step.reason))
    grid.add_row()
    grid.add_row("Job", Text.assemble(forecast.job, *given(forecast.settings, settings)))
    grid.add_row("Device", device_facts(forecast))
    if forecast.step_seconds is not None:
        grid.add_row("Step", describe_time(forecast.step_seconds))
    grid.add_row("Peak", moment(forecast.phase, forecast.owner, forecast.op))
    if shortage := forecast.shortage or forecast.shortage_at_worst:
        place = moment(shortage.phase, shortage.owner, shortage.op)
        grid.add_row("OOM at", f"{place}, asking for {gib(shortage.requested)}")
    return grid


def describe_time(of: Seconds) -> str:
    """
    >>> print(describe_time(Seconds(0.312, 0.215, 0.385)))
    about 0.31 s on the device (0.21 to 0.39), from the card's data sheet
    """
    return f"about {of.expected:.2g} s on the device ({of.low:.2g} to {of.high:.2g}), from the card's data sheet"


def given(values: Settings, settings: Sequence[Setting]) -> Iterator[str]:
    """The settings worth a reader's time: those that nearly always matter, and those that are not as usual."""
    usual = {setting.name: setting.default for setting in settings}
    always = {values.name_of(role) for role in ALWAYS_SHOWN}
    shown = [name for name in values if name in always or name not in usual or values[name] != usual[name]]
    if shown:
        yield "\n" + ", ".join(f"{name} {named(name, values[name])}" for name in shown)


def device_facts(forecast: Forecast) -> str:
    device = forecast.device
    facts = [gib(device.total)] if device.name != gib(device.total) else []
    if device.architecture:
        facts.append(device.architecture.capitalize())
    if any(device.capability):
        facts.append("compute capability {}.{}".format(*device.capability))
    if device.held:
        by = f" by {', '.join(device.held_by)}" if device.held_by else ""
        facts.append(f"{gib(device.held)} of it held now{by}")
    return f"{device.name}: {', '.join(facts)}" if facts else device.name


def levels(forecast: Forecast) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for heading in ("expected", "low", "high"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=6)
    table.add_column("as read by", style="dim", overflow="fold")
    allocated, reserved = forecast.read_by
    _level(table, "allocated", forecast.allocated, allocated)
    _level(table, "reserved", forecast.reserved, reserved)
    _level(table, "device", forecast.on_device, "nvidia-smi", "bold")
    _level(table, "host RAM", forecast.host, "RSS, with workers")
    table.add_row("/dev/shm", number(forecast.shm), "", "", "df /dev/shm")
    return table


def parts(forecast: Forecast) -> RenderableType:
    """Each part against its own limit; nothing where only training was looked at."""
    if forecast.validation is None and forecast.ram is None and forecast.shm_limit is None:
        return ""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for heading in ("expected", "at worst", "limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name, of in (("training", forecast), ("validation", forecast.validation)):
        if of is not None:
            decides = forecast.validation is not None and forecast.decides == name
            table.add_row(name, *_part(of.on_device, of.budget, of.on_device_outcome), "decides" if decides else "")
    table.add_row("host RAM", *_part(forecast.host, forecast.ram, forecast.host_outcome))
    shm = Range(forecast.shm, forecast.shm, forecast.shm)
    table.add_row("/dev/shm", *_part(shm, forecast.shm_limit, forecast.shm_outcome))
    return table


def _part(needs: Range, limit: int | None, outcome: str) -> tuple[str | Text, ...]:
    figures = (number(needs.expected), number(needs.high))
    if limit is None:
        return (*figures, "", Text("no limit given", style="dim"))
    return (*figures, number(limit), Text(outcome, style=STYLES[outcome]))


def _level(table: Table, name: str, level: Range, caption: str, style: str = "") -> None:
    figures = (number(level.expected), number(level.low), number(level.high))
    table.add_row(name, *figures, caption, style=style)


def _kinds(forecast: Forecast) -> list[tuple[str, int]]:
    """Everything nvidia-smi shows: live blocks by kind, what the allocator holds beyond them, the context."""
    unused = forecast.reserved.expected - forecast.allocated.expected
    kinds = [(PLURALS.get(kind, kind), nbytes) for kind, nbytes in forecast.kinds.items()]
    return [*kinds, ("reserved, unused", max(0, unused)), ("context", forecast.context)]


def _owners(forecast: Forecast) -> list[tuple[str, int]]:
    shown = [(name or "(no module)", nbytes) for name, nbytes in forecast.owners[:OWNERS]]
    rest = forecast.allocated.expected - sum(nbytes for _, nbytes in shown)
    return [*shown, ("all others", rest)] if shown and rest > 0 else shown


def _more_notes(forecast: Forecast) -> list[str]:
    """What is said of validation alone."""
    return [] if forecast.validation is None else [n for n in forecast.validation.notes if n not in forecast.notes]


def bullets(items: Sequence[str]) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    for item in items:
        grid.add_row("-", item)
    return grid if items else ""


def section(title: str, body: RenderableType) -> Iterator[RenderableType]:
    """A heading with an indented body; nothing at all where the body is empty."""
    if body and not (isinstance(body, Chart) and not body.rows):
        yield Text(f"\n{title}", style="bold")
        yield Padding(body, (0, 0, 0, 2))
