"""The GPUs oomproof knows, as a table. A figure it does not know stays empty, one it has estimated says so."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from oomproof.memory.cards.devices import Device, is_estimated
from oomproof.report.sizes import number


def report(devices: Sequence[Device]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("GPU", no_wrap=True, style="bold")
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("architecture", no_wrap=True)
    table.add_column("capability", justify="right", no_wrap=True)
    for device in devices:
        capability = "{}.{}".format(*device.capability) if any(device.capability) else ""
        about = "~" if is_estimated(device) else ""
        table.add_row(device.name, about + number(device.total), device.architecture.capitalize(), capability)
    note = Text("~ estimated from the GPU's family; the others as out-of-memory messages show them", style="dim")
    return Group(table, "", note) if any(map(is_estimated, devices)) else table
