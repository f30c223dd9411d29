"""Forecast and reality side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from oomproof.memory.forecast import Forecast

PARTS = {"parameters": "parameter", "buffers": "buffer", "optimizer": "optimizer"}
"""what was counted for real -> the forecast's word for it"""


class Real(Protocol):
    @property
    def allocated(self) -> int: ...
    @property
    def reserved(self) -> int | None: ...
    @property
    def on_device(self) -> int | None: ...
    @property
    def kinds(self) -> Mapping[str, int]: ...


def report(forecast: Forecast, real: Real, device: str, error: float) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in ("", "forecast", "real", "difference"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    levels: list[tuple[str, int, int | None]] = [
        ("allocated", forecast.allocated.expected, real.allocated),
        ("reserved", forecast.reserved.expected, real.reserved),
        ("on the device", forecast.on_device.expected, real.on_device),
    ]
    for name, expected, found in levels:
        if found is not None:
            table.add_row(name, _size(expected), _size(found), _difference(expected, found))
    known = {name: forecast.kinds.get(kind, 0) for name, kind in PARTS.items()}
    for name, found in real.kinds.items():
        expected = known[name] if name in known else forecast.allocated.expected - sum(known.values())
        words = name if name in known else "gradients, activations and the rest"
        table.add_row(f"  {words}", _size(expected), _size(found), _difference(expected, found))
    within = forecast.allocated.low <= real.allocated <= forecast.allocated.high
    verdict = f"the forecast is {abs(error):.1%} {'above' if error >= 0 else 'below'} the real peak, " + (
        "within its range" if within else "OUTSIDE ITS RANGE: please report it with --row"
    )
    where = "on the CPU, with its kernels" if device == "cpu" else f"on {device}"
    return Group(Text(f"{verdict} ({where})", style="bold"), Text(), table)


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.1f} MiB"


def _difference(expected: int, found: int) -> str:
    return f"{(expected - found) / found:+.1%}" if found else ("" if not expected else "all")
