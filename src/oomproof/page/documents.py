"""What a page shows, as plain data: JSON of the reports, and what pictures need besides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from oomproof.diagnosis.diagnosis import Diagnosis
from oomproof.memory.curve import Curve
from oomproof.memory.epoch import Epoch
from oomproof.memory.forecast import OUTCOMES, Forecast
from oomproof.memory.grid import Grid
from oomproof.plan.plan import Plan
from oomproof.report import as_json, plan_json
from oomproof.report.epoch import describe_chance, describe_remedy, epoch_document
from oomproof.report.explain import document as diagnosis_document
from oomproof.report.sizes import named
from oomproof.sources.job import Setting

POINTS_OF_A_CELL = 150


def check_document(
    forecast: Forecast, settings: Sequence[Setting], grid: Grid | None = None, plan: Plan | None = None
) -> dict[str, Any]:
    """``settings`` are those the job has: they say how a command line takes each."""
    return {
        "kind": "check" if plan is None else "fit",
        "title": forecast.job,
        "forecast": _forecast(forecast),
        "curve": _curve(forecast.curve, 1 << 30),
        "modules": _tree(forecast),
        "what_if": None if grid is None else _grid(grid, settings, forecast),
        "plan": None if plan is None else plan_json.plan(plan),
        "data": None if forecast.epoch is None else _data(forecast.epoch),
    }


def explain_document(diagnosis: Diagnosis) -> dict[str, Any]:
    return {"kind": "explain", "title": "Why it ran out of memory", "diagnosis": diagnosis_document(diagnosis)}


def _data(epoch: Epoch) -> dict[str, Any]:
    """What the JSON has, with its sentences and the points of a picture."""
    return {
        **epoch_document(epoch),
        "samples": [list(each) for each in epoch.samples],
        "chance_in_words": describe_chance(epoch) if epoch.worst.outcome != OUTCOMES[0] else "",
        "remedies_in_words": [describe_remedy(each) for each in epoch.remedies],
    }


def _forecast(forecast: Forecast) -> dict[str, Any]:
    return {**as_json.forecast(forecast), "outcome": forecast.outcome}


def _curve(curve: Curve | None, points: int) -> dict[str, Any] | None:
    if curve is None:
        return None
    kept = _highest(curve.live, points)
    return {
        "tick": curve.tick[kept].tolist(),
        "kinds": {kind: held[kept].tolist() for kind, held in curve.kinds.items()},
        "phases": [list(each) for each in curve.phases],
        "made": [list(curve.made[place]) for place in kept] if curve.made and points > POINTS_OF_A_CELL else [],
    }


def _highest(live: Any, points: int) -> list[int]:
    """The fullest point of every stretch, so that the peak is always among them."""
    if len(live) <= points:
        return list(range(len(live)))
    edges = np.linspace(0, len(live), points + 1).astype(int)
    return [int(a + live[a:b].argmax()) for a, b in pairwise(edges) if b > a]


def _tree(forecast: Forecast) -> list[dict[str, Any]]:
    """Modules at the peak as a tree: a module holds what its children hold, and what is its own."""
    held: dict[str, int] = {"": 0}
    for path, nbytes in forecast.modules.items():
        parts = path.split(".") if path else ["(no module)"]
        held[""] += nbytes
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            held[name] = held.get(name, 0) + nbytes
    return [
        {"id": name or "/", "parent": _parent(name), "label": name.rsplit(".", 1)[-1] or "all modules", "bytes": nbytes}
        for name, nbytes in held.items()
    ]


def _parent(name: str) -> str:
    return "" if not name else name.rpartition(".")[0] or "/"


def _grid(grid: Grid, settings: Sequence[Setting], own: Forecast) -> dict[str, Any]:
    known = {setting.name: setting for setting in settings}
    axes = []
    for axis in grid.axes:
        texts = [named(axis.name, value) for value in axis.values]
        options = [known[axis.name].as_option(text) for text in texts]
        axes.append({"name": axis.name, "values": texts, "options": options, "chosen": axis.chosen})
    cells = [_cell(place, forecasts) for place, forecasts in grid.cells.items()]
    refused = [{"at": list(place), "reason": reason} for place, reason in grid.refused.items()]
    return {
        "axes": axes,
        "cards": [{"name": card.name, "budget": int(card.budget)} for card in grid.cards],
        "cells": cells,
        "refused": refused,
        "outcomes": list(OUTCOMES),
        "command": f"oomproof check {_quoted(own.job)}",
    }


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text


def _cell(place: tuple[int, ...], forecasts: Sequence[Forecast]) -> dict[str, Any]:
    first = forecasts[0]
    return {
        "at": list(place),
        "curve": _curve(first.curve, POINTS_OF_A_CELL),
        "on": [
            {
                "outcome": OUTCOMES.index(each.outcome),
                "device": as_json.forecast(each)["device"],
                "allocated": int(each.allocated.expected),
                "reserved": int(each.reserved.expected),
            }
            for each in forecasts
        ],
    }
