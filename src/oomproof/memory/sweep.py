"""Forecasts of one job with one setting swept, as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oomproof.memory.forecast import Forecast


@dataclass(frozen=True)
class Sweep:
    """Forecasts of one job on one device, a row per value of the setting ``name``."""

    name: str
    rows: tuple[tuple[Any, Forecast], ...]
    refused: tuple[tuple[Any, str], ...] = ()
    """values that the job cannot be trained with, and why"""

    @property
    def fitting(self) -> tuple[Any, ...]:
        return tuple(setting for setting, forecast in self.rows if forecast.fits)

    @property
    def largest(self) -> Any:
        """The largest number or image size that fits; None where none does, or where values have no size."""
        sized = [setting for setting in self.fitting if measure_setting(setting) is not None]
        return max(sized, key=lambda setting: measure_setting(setting) or 0, default=None)


def measure_setting(setting: Any) -> float | None:
    """
    >>> measure_setting((800, 1333)) > measure_setting((640, 640))
    True
    """
    if isinstance(setting, float):
        return setting
    lengths = setting if isinstance(setting, tuple) else (setting,)
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in lengths)
    return math.prod(lengths) if lengths and whole else None


def hold_to_smaller(rows: Sequence[tuple[Any, Forecast]]) -> tuple[tuple[Any, Forecast], ...]:
    """Rows of rising work: none has a lower upper figure than one with less. How well blocks happen to fall into the
    allocator's gaps is luck (smaller_steps.py)."""
    held = list(rows)
    allocated = reserved = on_device = 0
    for place in sorted(range(len(rows)), key=lambda place: measure_setting(rows[place][0]) or 0):
        setting, row = rows[place]
        allocated = max(allocated, row.allocated.high)
        reserved = max(reserved, row.reserved.high)
        on_device = max(on_device, row.on_device.high)
        row = replace(
            row,
            allocated=replace(row.allocated, high=allocated),
            reserved=replace(row.reserved, high=reserved),
            on_device=replace(row.on_device, high=on_device),
        )
        held[place] = (setting, row)
    return tuple(held)
