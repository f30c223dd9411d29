"""Forecasts of one job over several settings and cards at once, as data: what a page's sliders show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast


@dataclass(frozen=True)
class Axis:
    """One setting, and the values that were looked at, in rising order where they have one."""

    name: str
    values: tuple[Any, ...]
    chosen: int
    """which of them the job has"""
    alone: bool = False
    """its other values were looked at only where every other axis that is alone has the job's own value"""


@dataclass(frozen=True)
class Grid:
    axes: tuple[Axis, ...]
    cards: tuple[Device, ...]
    """the one that was asked for first"""
    cells: Mapping[tuple[int, ...], tuple[Forecast, ...]]
    """by the place on every axis: a forecast for each card"""
    refused: Mapping[tuple[int, ...], str]
    """cells that the job cannot run, with the reason"""
    texts: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    """the job of a cell as a command line takes it, where that differs from cell to cell"""
