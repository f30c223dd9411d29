"""Plans for programs: the JSON of ``oomproof fit --json`` that docs/json.md promises. Bytes are integers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oomproof.plan.plan import Plan
from oomproof.report.as_json import forecast, plain
from oomproof.report.plan_verdict import verdict
from oomproof.sources.job import Knob


def plan(of: Plan, written: Path | None = None) -> dict[str, Any]:
    """``written`` is the file that the settings went to."""
    return {
        "verdict": verdict(of),
        "fits": of.fits,
        "job": of.job,
        "device_name": of.device.name,
        "budget": int(of.device.budget),
        "settings": {name: plain(setting) for name, setting in of.settings.items()},
        "changes": [
            {
                "knob": change.knob,
                "from": plain(change.before),
                "to": plain(change.after),
                "promise": change.promise,
                "frees": int(change.frees),
                "time": _factor(change.time),
                "why": change.why,
                "settings": plain(change.settings),
                "frees_host": int(change.frees_host),
            }
            for change in of.changes
        ],
        "time": _factor(of.time),
        "promise": of.promise,
        "before": forecast(of.before),
        "before_estimated": of.before_estimated,
        "after": forecast(of.after),
        "alternatives": [
            {
                "changes": one.changes,
                "promise": one.promise,
                "device": int(one.device),
                "time": _factor(one.time),
                "reason": one.reason,
            }
            for one in of.alternatives
        ],
        "frontier": [
            {
                "device": int(point.device),
                "time": _factor(point.time),
                "promise": point.promise,
                "changes": point.changes,
                "chosen": point.chosen,
            }
            for point in of.frontier
        ],
        "needs": list(of.needs),
        "attempts": [
            {
                "tried": one.tried,
                "how": one.how,
                "outcome": one.outcome,
                "reason": one.reason,
                "device_estimated": one.device_estimated,
                "device": one.device,
                "time_estimated": _factor(one.time_estimated),
                "time": _factor(one.time),
            }
            for one in of.attempts
        ],
        "interrupted": of.interrupted,
        "traces": int(of.traces),
        "seconds": round(float(of.seconds), 3),
        "written": None if written is None else str(written),
    }


def knobs(of: Sequence[Knob]) -> list[dict[str, Any]]:
    return [
        {
            "name": knob.name,
            "promise": knob.promise,
            "why": knob.why,
            "host": knob.host,
            "options": [
                {
                    "value": plain(option.value),
                    "settings": plain(option.settings),
                    "harm": float(option.harm),
                    "note": option.note,
                }
                for option in knob.options
            ],
        }
        for knob in of
    ]


def _factor(time: float | None) -> float | None:
    """An estimate has no more digits than these."""
    return None if time is None else round(float(time), 4)
