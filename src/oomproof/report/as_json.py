"""Forecasts for programs: the JSON that docs/json.md promises. Bytes are integers; names never change meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from oomproof.memory.cards.devices import Device, is_estimated
from oomproof.memory.forecast import Forecast, Range, Seconds
from oomproof.memory.sweep import Sweep
from oomproof.report.epoch import epoch_document as epoch
from oomproof.report.verdict import verdict
from oomproof.sources.job import Setting


def forecast(of: Forecast) -> dict[str, Any]:
    return {
        "verdict": verdict(of),
        "fits": of.fits,
        "job": of.job,
        "settings": {name: plain(setting) for name, setting in of.settings.items()},
        "device_name": of.device.name,
        "budget": int(of.budget),
        "allocated": _range(of.allocated),
        "reserved": _range(of.reserved),
        "device": _range(of.on_device),
        "host": {**_range(of.host), "shm": int(of.shm)},
        "ram": None if of.ram is None else int(of.ram),
        "kinds": {kind: int(nbytes) for kind, nbytes in of.kinds.items()},
        "owners": [[owner, int(nbytes)] for owner, nbytes in of.owners],
        "peak": {"phase": of.phase, "owner": of.owner, "op": of.op},
        "not_counted": list(of.not_counted),
        "notes": list(of.notes),
        "step_seconds": _seconds(of.step_seconds),
        "shm_limit": None if of.shm_limit is None else int(of.shm_limit),
        "validation": None if of.validation is None else _validation(of.validation),
        "decides": of.decides,
        "outcomes": _outcomes(of),
        "host_parts": {name: _range(part) for name, part in of.host_parts.items()},
        "data": None if of.epoch is None else epoch(of.epoch),
        "unseen": list(of.unseen),
    }


def _outcomes(of: Forecast) -> dict[str, str | None]:
    """Each part of the run against its own limit; None: not looked at, or without a limit."""
    return {
        "training": of.on_device_outcome,
        "validation": None if of.validation is None else of.validation_outcome,
        "host": None if of.ram is None else of.host_outcome,
        "shm": None if of.shm_limit is None else of.shm_outcome,
    }


def _validation(of: Forecast) -> dict[str, Any]:
    return {
        "outcome": of.on_device_outcome,
        "allocated": _range(of.allocated),
        "reserved": _range(of.reserved),
        "device": _range(of.on_device),
        "after_training": None if of.after_training is None else _range(of.after_training),
        "kinds": {kind: int(nbytes) for kind, nbytes in of.kinds.items()},
        "peak": {"phase": of.phase, "owner": of.owner, "op": of.op},
        "notes": list(of.notes),
    }


def sweep(of: Sweep) -> dict[str, Any]:
    rows = [{"value": plain(setting), **forecast(row)} for setting, row in of.rows]
    refused = [{"value": plain(setting), "why": why} for setting, why in of.refused]
    return {"sweep": of.name, "rows": rows, "largest": plain(of.largest), "refused": refused}


def gpus(devices: Sequence[Device]) -> list[dict[str, Any]]:
    return [
        {
            "name": device.name,
            "total": int(device.total),
            "estimated": is_estimated(device),
            "architecture": device.architecture,
            "capability": list(device.capability),
        }
        for device in devices
    ]


def settings(of: Sequence[Setting]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "default": plain(one.default), "help": one.help, "choices": list(one.choices)} for one in of
    ]


def text(document: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def plain(setting: Any) -> Any:
    """A setting's value as JSON has it: tuples become lists, what JSON lacks becomes text."""
    if setting is None or isinstance(setting, bool | int | float | str):
        return setting
    if isinstance(setting, tuple | list):
        return [plain(part) for part in setting]
    if isinstance(setting, Mapping):
        return {str(name): plain(part) for name, part in setting.items()}
    return str(setting)


def _seconds(of: Seconds | None) -> dict[str, float] | None:
    if of is None:
        return None
    return {name: float(f"{getattr(of, name):.4g}") for name in ("expected", "low", "high")}


def _range(level: Range) -> dict[str, int]:
    return {"expected": int(level.expected), "low": int(level.low), "high": int(level.high)}
