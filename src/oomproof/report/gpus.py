"""The GPUs oomproof knows, as a table. A figure it does not know stays empty."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table

from oomproof.memory.devices import Device
from oomproof.report.sizes import number


def report(devices: Sequence[Device]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("GPU", no_wrap=True, style="bold")
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("architecture", no_wrap=True)
    table.add_column("capability", justify="right", no_wrap=True)
    for device in devices:
        capability = "{}.{}".format(*device.capability) if any(device.capability) else ""
        table.add_row(device.name, number(device.total), device.architecture.capitalize(), capability)
    return table
