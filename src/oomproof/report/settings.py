"""The settings a job has, as ``oomproof check JOB --settings`` lists them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table

from oomproof.report.sizes import describe_setting
from oomproof.sources.job import Setting


def report(settings: Sequence[Setting]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("setting", no_wrap=True, style="bold")
    table.add_column("default", overflow="fold", style="cyan")
    table.add_column("meaning", overflow="fold")
    for setting in settings:
        choices = f" ({', '.join(setting.choices)})" if setting.choices else ""
        table.add_row(setting.name, describe_setting(setting.name, setting.default), setting.help + choices)
    return table
