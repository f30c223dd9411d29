"""One Forecast as text: verdict, what it is for, why, next; then the figures, what holds them, and what is not counted.
What most people do not read stands there with ``everything`` only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from oomproof.memory.forecast import Forecast, Range, Seconds
from oomproof.memory.runtime import OF_TENSORFLOW
from oomproof.report.advice import next_steps
from oomproof.report.bars import Chart
from oomproof.report.epoch import build_batches
from oomproof.report.sizes import describe_setting as written
from oomproof.report.sizes import gib, number
from oomproof.report.verdict import PLURALS, moment, verdict, why
from oomproof.sources.job import Role, Setting

STYLES = {"fits": "bold green", "at risk": "bold yellow", "does not fit": "bold red"}
OWNERS, FEW_OWNERS = 8, 4
KEPT = "training's cache kept"
ALWAYS_SHOWN: tuple[Role, ...] = ("batch", "image size", "precision")


def report(
    forecast: Forecast, settings: Sequence[Setting], *, named: Collection[str] = (), everything: bool = False
) -> RenderableType:
    """``settings`` are the ones the job has: the advice speaks only of those. ``named``: those that the user gave."""
    kinds, phases = Chart(_kinds(forecast), forecast.on_device.expected), list(forecast.phases.items())
    owners = Chart(_owners(forecast, OWNERS if everything else FEW_OWNERS), forecast.allocated.expected)
    return Group(
        _build_opening(forecast, settings, named, everything),
        *(() if forecast.epoch is None else section("Batches of the data", build_batches(forecast.epoch))),
        *section("Parts of the run, GiB", parts(forecast)),
        *section("Memory of a training step, GiB" if forecast.validation else "Memory, GiB", levels(forecast)),
        *(section("On the device at the peak, GiB", kinds) if everything else ()),
        *section("Modules that hold the most at the peak, GiB", owners),
        *(section("Most in each phase, GiB", Chart(phases, forecast.allocated.expected)) if everything else ()),
        *build_closing([*forecast.notes, *_more_notes(forecast)], forecast.not_counted, everything),
    )


def build_closing(notes: Sequence[str], not_counted: Sequence[str], everything: bool) -> Iterator[RenderableType]:
    """Notes, and what is not counted: of the notes the first sentences, unless all is asked for."""
    yield from section("Notes", bullets(notes if everything else [first_sentence(note) for note in notes]))
    if not_counted:
        yield Text.assemble(("\nNot counted  ", "bold"), "; ".join(not_counted))
    if not everything:
        yield Text("\nThe rest of the report: --all", style="dim")


def first_sentence(note: str) -> str:
    """
    >>> first_sentence("TensorFlow takes 6.16 GiB. Others take less")
    'TensorFlow takes 6.16 GiB'
    >>> first_sentence("--set loss=... says what yours is. Others do too")
    '--set loss=... says what yours is'
    """
    return re.split(r"(?<!\.)\. ", note, maxsplit=1)[0]


def _build_opening(
    forecast: Forecast, settings: Sequence[Setting], named: Collection[str], everything: bool
) -> RenderableType:
    sentence, steps = next_steps(forecast, settings)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("Verdict", Text(verdict(forecast), style=STYLES[forecast.outcome]))
    grid.add_row("For", describe_job(forecast, settings, named))
    if forecast.unseen:
        grid.add_row("Unseen", Text("; ".join(forecast.unseen)))
    grid.add_row("Why", why(forecast))
    grid.add_row("Next", sentence)
    for step in steps:
        grid.add_row("", Text.assemble((step.option, "bold cyan"), "  ", step.reason))
    grid.add_row()
    grid.add_row("Device", device_facts(forecast))
    if forecast.step_seconds is not None:
        grid.add_row("Step", describe_time(forecast.step_seconds))
    if not everything:  # the reason says where the peak is
        return grid
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


def describe_job(forecast: Forecast, settings: Sequence[Setting], given: Collection[str]) -> Text:
    """The job with what decides the answer: settings that nearly always matter, that are not as usual, or that nobody
    has said (``given`` are the ones that the user has), and the batches that a script was seen to load."""
    values = forecast.settings
    if forecast.epoch is not None:  # the dataset says how many objects there are
        values = values.without(values.name_of("boxes"))
    usual = {setting.name: setting for setting in settings}
    always = {values.name_of(role) for role in ALWAYS_SHOWN}
    shown = []
    for name in values:
        known = usual.get(name)
        if name == "workers" and not _asks_for_workers(forecast):
            known = known and replace(known, basis="")
        basis = known.basis if known and name not in given and values[name] == known.default else ""
        if name in always or known is None or values[name] != known.default or basis:
            shown.append(f"{name} {written(name, values[name])}{f' ({basis})' if basis else ''}")
    described = f"{forecast.job}: {', '.join(shown)}" if shown else forecast.job
    return Text(f"{described}; {forecast.batches_seen}" if forecast.batches_seen else described)


def _asks_for_workers(forecast: Forecast) -> bool:
    """Whether the answer depends on how many a DataLoader has; TensorFlow's pipelines have none."""
    limited = forecast.ram is not None or forecast.shm_limit is not None
    return limited and not any(name in forecast.settings for name in OF_TENSORFLOW)


def device_facts(forecast: Forecast) -> str:
    device = forecast.device
    facts = [gib(device.total)] if device.name != gib(device.total) else []
    if device.architecture:
        facts.append(device.architecture.capitalize())
    if any(device.capability):
        facts.append("compute capability {}.{}".format(*device.capability))
    if device.held:
        by = f" by {', '.join(device.held_by)}" if device.held_by else ""
        facts.append(f"{gib(device.held)} of it held{by}")
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
    several = forecast.settings.get("processes", 1)
    _level(table, "host RAM", forecast.host, f"RSS{f' of {several} processes' if several > 1 else ''}, with workers")
    if forecast.shm:
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
    if forecast.validation is not None and (cached := forecast.validation.after_training):
        table.add_row("  after training", number(cached.expected), number(cached.high), "", Text(KEPT, style="dim"))
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


def _owners(forecast: Forecast, most: int) -> list[tuple[str, int]]:
    shown = [(name or "(no module)", nbytes) for name, nbytes in forecast.owners[:most]]
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
