"""A Diagnosis as text: verdict, why, next; then the evidence and what else it may be. And as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from oomproof.diagnosis.diagnosis import Diagnosis

FIGURES = ("requested", "total", "free", "allocated", "reserved", "process", "limit")
OUTCOMES = {"benign_warning": "fits", "not_memory": "fits", "unknown": "at risk"}
"""of causes for which a log is not one of memory that ran out"""
STYLES = {"fits": "bold green", "at risk": "bold yellow", "does not fit": "bold red"}


def document(of: Diagnosis) -> dict[str, Any]:
    """What docs/json.md promises."""
    return {
        "verdict": of.verdict,
        "why": of.why,
        "next": of.next,
        "cause": of.cause,
        "causes": [
            {"id": cause.id, "confidence": cause.confidence, "evidence": list(cause.evidence)} for cause in of.causes
        ],
        "facts": dict(of.facts),
        "alternatives": list(of.alternatives),
    }


def report(of: Diagnosis) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("Verdict", Text(of.verdict, style=STYLES[outcome(of)]))
    grid.add_row("Why", Text(of.why))
    grid.add_row("Next", Text(of.next, style="cyan"))
    return Group(
        grid,
        *_section("Evidence", _bullets(of.causes[0].evidence)),
        *_section("Other causes, as likely or less" if of.alternatives else "Other causes, less likely", _others(of)),
        *_section("From the log", _facts(of)),
    )


def outcome(of: Diagnosis) -> str:
    """The word of a forecast that a verdict is coloured like."""
    return OUTCOMES.get(of.cause, "does not fit")


def _others(of: Diagnosis) -> RenderableType | None:
    if len(of.causes) < 2:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for cause in of.causes[1:]:
        table.add_row(cause.id, f"{cause.confidence:.2f}", Text(cause.why))
    return table


def _facts(of: Diagnosis) -> RenderableType | None:
    return Text("\n".join(list_figures(of)))


def list_figures(of: Diagnosis) -> list[str]:
    """What was read from the log, a line each."""
    figures = [f"{name} {_amount(of.facts[name])}" for name in FIGURES if of.facts.get(name) is not None]
    words = [
        f"{name} {of.facts[name]}"
        for name in ("framework", "batch", "workers", "epoch", "step", "rank")
        if of.facts.get(name) is not None
    ]
    lines = [", ".join(figures), ", ".join(words), f"cause id: {' or '.join((of.cause, *of.alternatives))}"]
    return [line for line in lines if line]


def _amount(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.2f} GiB" if abs(nbytes) >= 1 << 30 else f"{nbytes / (1 << 20):.1f} MiB"


def _bullets(items: tuple[str, ...]) -> RenderableType | None:
    if not items:
        return None
    grid = Table.grid(padding=(0, 1))
    for item in items:
        grid.add_row("-", Text(item))
    return grid


def _section(title: str, body: RenderableType | None) -> Iterator[RenderableType]:
    if body is not None:
        yield Text(f"\n{title}", style="bold")
        yield Padding(body, (0, 0, 0, 2))
