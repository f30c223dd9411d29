"""A grid of forecasts as a page's sliders need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oomproof.memory.forecast import OUTCOMES, Forecast
from oomproof.memory.grid import Axis, Grid
from oomproof.memory.sweep import measure_setting
from oomproof.page.command import Typed, write_command, write_option
from oomproof.page.curve import curve_of_cell
from oomproof.report import as_json
from oomproof.report.sizes import describe_setting
from oomproof.sources.job import Setting


def grid_document(grid: Grid, settings: Sequence[Setting], own: Forecast, typed: Typed) -> dict[str, Any]:
    """``settings`` are those the job has: they say how a command line takes each."""
    names = _names(grid, own)
    on = typed.device or f'--on "{grid.cards[0].name}"'
    command, end = write_command(typed, settings, names)
    given = {name: as_json.plain(value) for name, value in typed.given.items() if name not in names}
    keys = {key: value for key, value in zip(typed.keys[::2], typed.keys[1::2], strict=False) if key not in names}
    return {
        "axes": [
            {**_axis(axis, settings), "silent": axis.alone and axis.name not in typed.given} for axis in grid.axes
        ],
        "cards": [
            {"name": card.name, "budget": int(card.budget), "option": f'--on "{card.name}"' if at else on}
            for at, card in enumerate(grid.cards)
        ],
        "cells": [
            {**_cell(place, forecasts), "text": grid.texts.get(place, "")} for place, forecasts in grid.cells.items()
        ],
        "refused": [{"at": list(place), "reason": reason} for place, reason in grid.refused.items()],
        "outcomes": list(OUTCOMES),
        "command": command,
        "command_end": end,
        "file": {"oomproof": 1, "job": typed.job, "settings": {**given, **keys}},
    }


def _names(grid: Grid, own: Forecast) -> set[str]:
    """What the controls say: settings by their own name and, of a batch, by the word that all jobs know."""
    names = {axis.name for axis in grid.axes}
    shared = {role.replace(" ", "_") for role, name in own.settings.roles.items() if name in names}
    return names | shared


def _axis(axis: Axis, settings: Sequence[Setting]) -> dict[str, Any]:
    known = {setting.name: setting for setting in settings}
    return {
        "name": axis.name,
        "values": [describe_setting(axis.name, value) for value in axis.values],
        "plain": [as_json.plain(value) for value in axis.values],
        "options": [write_option(axis.name, value, known) for value in axis.values],
        "chosen": axis.chosen,
        "alone": axis.alone,
        "help": known[axis.name].help if axis.name in known else "",
        "ordered": all(measure_setting(value) is not None for value in axis.values),
    }


def _cell(place: tuple[int, ...], forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """Cards differ in what libraries take, and most do not: a curve that several share is kept once."""
    curves = [curve_of_cell(each.curve) for each in forecasts]
    kept = [curve for at, curve in enumerate(curves) if curve not in curves[:at]]
    return {
        "at": list(place),
        "curves": kept,
        "on": [
            {
                "outcome": OUTCOMES.index(each.outcome),
                "device": as_json.forecast(each)["device"],
                "allocated": int(each.allocated.expected),
                "reserved": int(each.reserved.expected),
                "curve": kept.index(curve),
            }
            for each, curve in zip(forecasts, curves, strict=True)
        ],
    }
