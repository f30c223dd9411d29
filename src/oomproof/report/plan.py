"""One Plan as text: verdict, why, next; then the changes, before and after, what was turned down, and the frontier."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from oomproof.memory.forecast import Forecast, Range
from oomproof.plan.plan import Plan
from oomproof.report import changes
from oomproof.report.epoch import build_batches
from oomproof.report.frontier import Frontier
from oomproof.report.plan_verdict import next_step, verdict, why
from oomproof.report.sizes import describe_count, number
from oomproof.report.sizes import describe_setting as written
from oomproof.report.terminal import STYLES, build_closing, describe_job, device_facts, levels, section
from oomproof.report.verdict import moment
from oomproof.sources.job import Setting, Settings

FEW_ALTERNATIVES = 3


def report(
    plan: Plan,
    settings: Sequence[Setting],
    writing: bool = False,
    *,
    named: Collection[str] = (),
    everything: bool = False,
) -> RenderableType:
    """``settings`` are the ones the job has, ``named`` those that the user gave; ``writing``: the plan will be written
    back to where the job came from."""
    frontier = Frontier(plan.frontier, plan.device.budget) if everything and len(plan.frontier) > 1 else ""
    rejected = plan.alternatives if everything else plan.alternatives[:FEW_ALTERNATIVES]
    miss = "" if plan.fits else " of the nearest miss"
    return Group(
        _build_opening(plan, settings, writing, named),
        *section(f"Changes{miss}, least harmful first", changes.changes(plan)),
        *section(f"Settings{miss}, in full", _settings(plan)),
        *(section("Memory, GiB", levels(plan.after)) if not plan.changes else ()),
        *(_before_and_after(plan) if everything and plan.changes else ()),  # else the verdict and its reason say it
        *(() if plan.after.epoch is None else section("Batches of the data", build_batches(plan.after.epoch))),
        *section("Turned down", changes.alternatives(rejected)),
        *section("Memory against time per image", frontier),
        *build_closing([*_notes(plan, everything), *plan.after.notes], plan.after.not_counted, everything),
    )


def _build_opening(plan: Plan, settings: Sequence[Setting], writing: bool, named: Collection[str]) -> RenderableType:
    sentence, steps = next_step(plan, writing)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("Verdict", Text(verdict(plan), style=STYLES[plan.after.outcome]))
    grid.add_row("For", describe_job(replace(plan.before, epoch=plan.after.epoch), settings, named))
    if plan.after.unseen:
        grid.add_row("Unseen", Text("; ".join(plan.after.unseen)))
    grid.add_row("Why", why(plan))
    grid.add_row("Next", sentence)
    for step in steps:
        grid.add_row("", Text(step, style="bold cyan"))
    grid.add_row()
    grid.add_row("Device", device_facts(plan.after))
    return grid


def _settings(plan: Plan) -> RenderableType:
    changed = changes.settings(plan.before.settings, plan.settings)
    if not changed:
        return ""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, setting in changed.items():
        grid.add_row(name, written(name, setting) if "." in name else changes.whole(setting))
    return grid


def _before_and_after(plan: Plan) -> Iterator[RenderableType]:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for heading in ("before, about" if plan.before_estimated else "before", "at worst", "after", "at worst"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, before, after in _pairs(plan):
        figures = [number(size) for size in (before.expected, before.high, after.expected, after.high)]
        table.add_row(name, *figures, style="bold" if name == "device" else "")
    peaks = Table.grid(padding=(0, 2))
    peaks.add_column(no_wrap=True)
    peaks.add_column(overflow="fold")
    peaks.add_row("peak before", _peak(plan.before))
    peaks.add_row("peak after", _peak(plan.after))
    yield from section("Before and after, GiB", Group(table, peaks))


def _pairs(plan: Plan) -> Iterator[tuple[str, Range, Range]]:
    yield "allocated", plan.before.allocated, plan.after.allocated
    yield "reserved", plan.before.reserved, plan.after.reserved
    yield "device", plan.before.on_device, plan.after.on_device
    yield "host RAM", plan.before.host, plan.after.host


def _peak(forecast: Forecast) -> str:
    return moment(forecast.phase, forecast.owner, forecast.op)


def _notes(plan: Plan, everything: bool) -> Iterator[str]:
    if plan.changes:
        yield from _about_the_batch(plan)
    if not everything:
        return
    if plan.changes:
        for promise in dict.fromkeys(change.promise for change in plan.changes):
            yield f"{promise}: {changes.MEANS[promise]}"
        yield "time is an estimate from the operations that were traced; where the data loader is slower, it decides"
    if plan.frontier or plan.alternatives:
        estimated = "other rows are estimated from traces under other settings"
        if plan.before_estimated:
            estimated = "what it needs as it is and other rows are estimated from traces of few images"
        yield f"memory after the changes is that of a full trace; {estimated}"
    if plan.traces:
        yield f"found with {plan.traces} trace{'s' if plan.traces > 1 else ''} in {plan.seconds:.0f} s"


def _about_the_batch(plan: Plan) -> Iterator[str]:
    before, after = _effective_batch(plan.before.settings), _effective_batch(plan.settings)
    if not before or not after:
        return
    micro, count = plan.settings.of("batch"), plan.settings.get("accumulate", 1)
    product = f" = {describe_count(micro, 'image')} x {count} micro-batches" if count > 1 else ""
    uneven = before != after and count > 1 and math.ceil(before / micro) == count  # micro-batches differ by an image
    if uneven:
        product = f" in {count} micro-batches of {micro} images at most"
    if before == after or uneven:
        yield f"the effective batch stays {before}{product}: learning rate and schedule stay as they are"
    else:
        yield f"the effective batch goes from {before} to {after}{product}: the learning rate has to follow it"


def _effective_batch(settings: Settings) -> int:
    """Images per update; 0 where the job does not say."""
    batch, count = settings.of("batch"), settings.get("accumulate", 1)
    return batch * count if isinstance(batch, int) and isinstance(count, int) else 0
