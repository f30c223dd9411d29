"""What a plan changes, in words and tables: from what to what, the bytes it frees, the time it costs, its promise.

>>> times(1.0), times(1.12), times(0.5)
('as before', '+12 %', '-50 %')
>>> brief("backbone.body.layer1.0,backbone.body.layer1.1,backbone.body.layer1.2")
'3 modules'
>>> brief((800, 1333))
'800x1333'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from oomproof.plan.plan import Alternative, Change, Plan
from oomproof.report.sizes import GIB, number, value
from oomproof.sources.job import Knob

MEANS = {
    "identical": "the same gradients as before, up to rounding of the last digits",
    "equivalent": "the same training in expectation, or up to the rounding of the arithmetic",
    "different": "another training: expect another result, and look at it",
}
STYLES = {"identical": "green", "equivalent": "yellow", "different": "red"}
ALTERNATIVES = 8
"""more are in the JSON"""
COUNTED = 8
"""numbers of one knob; of more a few are shown"""
WIDTH = 60
"""a longer value is shortened in tables"""


def changes(plan: Plan) -> RenderableType:
    """One row a change, least harmful first, as the plan has them; their sum below."""
    if not plan.changes:
        return ""
    table = _table("frees GiB")
    for change in plan.changes:
        what = Text(f"{change.knob} {brief(change.before)} -> {brief(change.after)}", style="bold")
        table.add_row(with_reason(what, change.why), _promise(change.promise), _frees(change), times(change.time))
    if len(plan.changes) > 1:
        together = _describe_all_freed(plan)
        table.add_row("together", _promise(plan.promise), together, times(plan.time))
    return table


def alternatives(turned_down: Sequence[Alternative]) -> RenderableType:
    if not turned_down:
        return ""
    table = _table("GiB at worst")
    for one in turned_down[:ALTERNATIVES]:
        table.add_row(
            with_reason(Text(one.changes), one.reason), _promise(one.promise), number(one.device), times(one.time)
        )
    if len(turned_down) > ALTERNATIVES:
        table.add_row(Text(f"{len(turned_down) - ALTERNATIVES} more: see --json", style="dim"))
    return table


def knobs(of: Sequence[Knob]) -> RenderableType:
    """What may be turned, as ``oomproof fit JOB --knobs`` lists it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("knob", no_wrap=True, style="bold")
    table.add_column("from the present value to the thriftiest", overflow="fold")
    table.add_column("promise", no_wrap=True)
    for knob in of:
        values = " -> ".join(_values(knob))
        if len(knob.options) == 1:  # what to recompute is worked out for each budget, not picked from a list
            values += " -> worked out by the search"
        others = [f"{brief(option.value)}: {option.promise}" for option in knob.options if option.promise]
        if knob.host:
            others.append("for host RAM: with --ram")
        promise = _promise(knob.promise)
        table.add_row(knob.name, with_reason(Text(values, style="cyan"), "; ".join([knob.why, *others])), promise)
    return table


def _values(knob: Knob) -> list[str]:
    """Every value; of a long row of numbers the first two and the last."""
    shown = [brief(option.value) for option in knob.options]
    counted = all(isinstance(option.value, int) for option in knob.options)
    return [*shown[:2], "...", shown[-1]] if counted and len(shown) > COUNTED else shown


def settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a plan changes, in full."""
    return {name: new for name, new in after.items() if name not in before or before[name] != new}


def brief(setting: Any) -> str:
    """A value short enough for a table: of a list of modules their number."""
    text = value(setting)
    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 3 and len(text) <= WIDTH:
        return text
    return f"{len(parts)} modules" if len(parts) > 1 else f"{text[: WIDTH - 4]} ..."


def whole(setting: Any) -> str:
    """A value with nothing left out: of a list of modules those beside each other share their path.

    >>> whole("body.layer1.0,body.layer1.1,body.layer2.0:2,head")
    'body.layer1.{0,1}, body.layer2.0:2, head'
    """
    groups: dict[str, list[str]] = {}
    for part in value(setting).split(","):
        parent, dot, name = part.strip().rpartition(".")
        groups.setdefault(parent + dot, []).append(name)
    inner = (parent + (f"{{{','.join(names)}}}" if len(names) > 1 else names[0]) for parent, names in groups.items())
    return ", ".join(inner) if "," in value(setting) else value(setting)


def describe_freed(nbytes: int) -> str:
    """GiB that a change frees; one that takes memory has a minus before it.

    >>> describe_freed(3 << 29), describe_freed(-(1 << 29)), describe_freed(0)
    ('1.50', '-0.50', '0.00')
    """
    return number(nbytes) if nbytes >= 0 else f"-{number(-nbytes)}" if -nbytes >= GIB // 200 else "0.00"


def _frees(change: Change) -> str:
    """Of the device; a change that is made for the host frees nothing there."""
    return f"RAM {describe_freed(change.frees_host)}" if change.frees_host else describe_freed(change.frees)


def _describe_all_freed(plan: Plan) -> str:
    device, host = (
        plan.before.on_device.expected - plan.after.on_device.expected,
        plan.before.host.high - plan.after.host.high,
    )
    of_host = any(change.frees_host for change in plan.changes)
    both = [describe_freed(device)] if device or not of_host else []
    return ", ".join([*both, *([f"RAM {describe_freed(host)}"] if of_host else [])])


def times(factor: float) -> str:
    """Time per image against the job as it was."""
    percent = round((factor - 1) * 100)
    return f"{percent:+d} %" if percent else "as before"


def join_with_and(parts: Iterable[str]) -> str:
    """
    >>> join_with_and(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _table(figure: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("change", overflow="fold")
    table.add_column("promise", no_wrap=True)
    table.add_column(figure, justify="right", no_wrap=True)
    table.add_column("time/image", justify="right", no_wrap=True)
    return table


def with_reason(what: Text, why: str | Text) -> RenderableType:
    """The reason stands below what it explains: a column of its own would be too narrow to read."""
    reason = Text(why, style="dim") if isinstance(why, str) else why
    return Group(what, Padding(reason, (0, 0, 0, 2))) if reason else what


def _promise(name: str) -> Text:
    return Text(name, style=STYLES.get(name, ""))
