"""Published models as tables: what each achieved and, for a device, whether it trains there and with what changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from oomproof.memory.forecast import Forecast
from oomproof.plan.plan import Plan
from oomproof.report import plan_json
from oomproof.report.as_json import forecast as forecast_document
from oomproof.report.as_json import plain
from oomproof.report.changes import brief, times, with_reason
from oomproof.report.sizes import number, value
from oomproof.report.terminal import STYLES
from oomproof.report.verdict import tight
from oomproof.sources.zoo import Published

TITLES = {
    "boxes": "Boxes",
    "masks": "Boxes and masks",
    "keypoints": "Boxes and keypoints",
    "segmentation": "Segmentation",
}


@dataclass(frozen=True)
class ZooRow:
    """One model of the zoo on one device."""

    published: Published
    forecast: Forecast | None = None
    """as its reference recipe trains it; none where only the published figures were asked for"""
    plan: Plan | None = None
    """the changes that make it fit, where it does not as it is"""
    problem: str = ""
    """why it cannot be trained so on any device"""

    @property
    def fits(self) -> bool:
        return self.final is not None and self.final.fits

    @property
    def final(self) -> Forecast | None:
        return self.plan.after if self.plan is not None else self.forecast


def build_listing(entries: Sequence[Published]) -> RenderableType:
    """The published figures alone."""
    parts: list[RenderableType] = []
    site = _find_common_folder([entry.source for entry in entries])
    for group in _groups(entries):
        table = _table(group[0])
        table.add_column("GFLOPs", justify="right", no_wrap=True)
        for entry in group:
            gflops = f"{entry.gflops:.1f}" if entry.gflops else ""
            model = with_reason(_name(entry), entry.source.removeprefix(site))
            table.add_row(model, *_facts(entry), gflops)
        parts += [*_heading(group[0]), table, ""]
    return Group(*parts, Text(f"Sources are under {site}; GFLOPs are of one image in inference.", style="dim"))


def survey(rows: Sequence[ZooRow], device: str) -> RenderableType:
    """A row a model: does it train on the device, and with what changes?"""
    parts: list[RenderableType] = [Text(f"{conclusion(rows, device)}\n", style=STYLES[_outcome(rows)])]
    found = {row.published.job: row for row in rows}
    headings = ("GiB", "at worst", "time/image") if any(row.plan for row in rows) else ("GiB", "at worst")
    for group in _groups([row.published for row in rows]):
        table = _table(group[0])
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for entry in group:
            *cells, said = _result(found[entry.job])
            table.add_row(with_reason(_name(entry), said), *_facts(entry), *cells[: len(headings)])
        parts += [*_heading(group[0]), table, ""]
    note = (
        "Each as it was published, on one of its GPUs, with 93 objects an image: torchvision's by its reference "
        "script, Detectron2's by its config."
    )
    if any(row.final and tight(row.final) for row in rows):
        note += " Where a model takes all there is at worst, part of it is workspace that cuDNN can do without."
    return Group(*parts, Text(note, style="dim"))


def conclusion(rows: Sequence[ZooRow], device: str) -> str:
    as_they_are = sum(1 for row in rows if row.fits and row.plan is None)
    changed = sum(1 for row in rows if row.fits and row.plan is not None)
    if not as_they_are + changed:
        return f"{device} trains none of these {len(rows)} models."
    parts = [f"{as_they_are} as they are"] if as_they_are else []
    parts += [f"{changed} with changes"] if changed else []
    return f"{device} trains {as_they_are + changed} of these {len(rows)} models: {', '.join(parts)}."


def document(rows: Sequence[ZooRow]) -> list[dict[str, Any]]:
    """The JSON; what was not asked for, or cannot be, is null."""
    return [_row_document(row) for row in rows]


def _row_document(row: ZooRow) -> dict[str, Any]:
    entry, final = row.published, row.final
    about = None if final is None else forecast_document(final)
    return {
        "model": entry.job,
        "task": entry.task,
        "outputs": entry.outputs,
        "metric": entry.metric,
        "value": entry.value,
        "data": entry.data,
        "source": entry.source,
        "parameters": entry.parameters or None,
        "gflops": entry.gflops or None,
        "fits": None if about is None and not row.problem else row.fits,
        "problem": row.problem or None,
        "settings": None if final is None else plain(row.plan.settings if row.plan else final.settings),
        "changes": plan_json.plan(row.plan)["changes"] if row.plan else [],
        "time": row.plan.time if row.plan else 1.0,
        "device": None if about is None else about["device"],
        "budget": None if about is None else about["budget"],
    }


def _groups(entries: Iterable[Published]) -> list[list[Published]]:
    groups: dict[str, list[Published]] = {}
    for entry in entries:
        groups.setdefault(entry.outputs, []).append(entry)
    return list(groups.values())


def _find_common_folder(addresses: Sequence[str]) -> str:
    """The folder that all of them are under."""
    levels = zip(*(address.split("/")[:-1] for address in addresses), strict=False)
    return "".join(f"{level[0]}/" for level in takewhile(lambda level: len(set(level)) == 1, levels))


def _heading(entry: Published) -> list[RenderableType]:
    return [Text(f"{TITLES.get(entry.outputs, entry.outputs)} ({entry.metric} on {entry.data}, %)", style="bold")]


def _table(entry: Published) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("model", overflow="fold")
    table.add_column(entry.metric, justify="right", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    return table


def _name(entry: Published) -> Text:
    """Of a config the name without its folder, which `oomproof check` takes as well, and which leaves room for more."""
    return Text(entry.job.removeprefix("torchvision:").rpartition("/")[2], style="bold")


def _facts(entry: Published) -> tuple[str, str]:
    return f"{entry.value:.1f}", f"{entry.parameters / 1e6:.1f} M" if entry.parameters else ""


def _result(row: ZooRow) -> tuple[str, str, str, Text]:
    """Its figures, and what came out."""
    final = row.final
    if final is None:
        return "", "", "", Text(row.problem)
    said = Text(final.outcome, style=STYLES[final.outcome])
    said.append(f": {_settings(row)}", style="default")
    figures = (number(final.on_device.expected), number(final.on_device.high))
    return (*figures, times(row.plan.time) if row.plan else "", said)


def _settings(row: ZooRow) -> str:
    if row.plan is not None and row.plan.changes:
        return ", ".join(f"{each.knob} {brief(each.before)} -> {brief(each.after)}" for each in row.plan.changes)
    assert row.final is not None
    settings = row.final.settings
    return f"batch {value(settings.of('batch'))}, {value(settings['image_size'])}"


def _outcome(rows: Sequence[ZooRow]) -> str:
    return "fits" if any(row.fits for row in rows) else "does not fit"
