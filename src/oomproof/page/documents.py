"""What a page shows, as plain data: JSON of the reports, their sentences, and what pictures need besides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from oomproof.diagnosis.diagnosis import Diagnosis
from oomproof.memory.epoch import Epoch
from oomproof.memory.forecast import OUTCOMES, Forecast
from oomproof.memory.grid import Grid
from oomproof.memory.sweep import Sweep
from oomproof.page.command import Typed
from oomproof.page.curve import curve_document
from oomproof.page.what_if import grid_document
from oomproof.plan.plan import Plan
from oomproof.report import as_json, plan_json, plan_verdict
from oomproof.report import explain as of_diagnosis
from oomproof.report import sweep as of_sweep
from oomproof.report import verdict as of_forecast
from oomproof.report.advice import next_steps
from oomproof.report.epoch import describe_chance, describe_remedy, epoch_document
from oomproof.report.sizes import describe_setting
from oomproof.report.terminal import describe_job
from oomproof.sources.job import Setting


def check_document(
    forecast: Forecast,
    settings: Sequence[Setting],
    grid: Grid | None = None,
    plan: Plan | None = None,
    typed: Typed | None = None,
) -> dict[str, Any]:
    """``settings`` are those the job has: advice and commands speak of them. ``typed`` is the user's command."""
    typed = typed or Typed(forecast.job)
    opening = (
        _build_opening(forecast, settings, typed.given) if plan is None else _plan_opening(plan, settings, typed.given)
    )
    return {
        "kind": "check" if plan is None else "fit",
        "title": f"{forecast.job} on {forecast.device.name}",
        "opening": opening,
        "forecast": {**as_json.forecast(forecast), "outcome": forecast.outcome},
        "curve": curve_document(forecast.curve),
        "validation_curve": None if forecast.validation is None else curve_document(forecast.validation.curve),
        "modules": _tree(forecast),
        "what_if": None if grid is None else grid_document(grid, settings, forecast, typed),
        "plan": None if plan is None else plan_json.plan(plan),
        "data": None if forecast.epoch is None else _data(forecast.epoch),
    }


def explain_document(diagnosis: Diagnosis) -> dict[str, Any]:
    told = of_diagnosis.document(diagnosis)
    for cause, document in zip(diagnosis.causes, told["causes"], strict=True):
        document["why"] = cause.why
    told["outcome"] = of_diagnosis.outcome(diagnosis)
    told["figures"] = of_diagnosis.list_figures(diagnosis)
    return {"kind": "explain", "title": "Why it ran out of memory", "diagnosis": told}


def sweep_document(sweep: Sweep) -> dict[str, Any]:
    first = sweep.rows[0][1]
    notes = dict.fromkeys(of_sweep.describe_refused(sweep))
    notes |= dict.fromkeys(note for _, row in sweep.rows for note in row.notes)
    ram = f" with {first.ram / (1 << 30):.2f} GiB of host RAM" if first.ram is not None else ""
    return {
        "kind": "sweep",
        "title": f"{first.job} on {first.device.name}{ram}",
        "sweep": {
            "name": sweep.name,
            "conclusion": of_sweep.conclusion(sweep),
            "fits": bool(sweep.fitting),
            "budget": int(first.budget),
            "ram": None if first.ram is None else int(first.ram),
            "rows": [_row(sweep.name, setting, row) for setting, row in sweep.rows],
            "notes": list(notes),
            "not_counted": list(first.not_counted),
        },
    }


def _row(name: str, setting: Any, of: Forecast) -> dict[str, Any]:
    document = as_json.forecast(of)
    return {
        "value": as_json.plain(setting),
        "text": describe_setting(name, setting),
        "outcome": of.outcome,
        "outcome_text": of_sweep.describe_outcome(of),
        "outcomes": {"device": of.on_device_outcome, "host": of.host_outcome},
        "seconds": None if of.step_seconds is None else of.step_seconds.expected,
        **{level: document[level] for level in ("allocated", "reserved", "device", "host")},
    }


def _build_opening(forecast: Forecast, settings: Sequence[Setting], given: Collection[str]) -> dict[str, Any]:
    """What the terminal's report begins with."""
    sentence, steps = next_steps(forecast, settings)
    return {
        "for": describe_job(forecast, settings, given).plain,
        "unseen": "; ".join(forecast.unseen),
        "why": of_forecast.why(forecast),
        "next": sentence,
        "options": [{"option": step.option, "reason": step.reason} for step in steps],
    }


def _plan_opening(plan: Plan, settings: Sequence[Setting], given: Collection[str]) -> dict[str, Any]:
    sentence, steps = plan_verdict.next_step(plan, writing=False)
    return {
        "for": describe_job(plan.before, settings, given).plain,
        "unseen": "; ".join(plan.after.unseen),
        "why": plan_verdict.why(plan),
        "next": sentence,
        "options": [{"option": step, "reason": ""} for step in steps],
    }


def _data(epoch: Epoch) -> dict[str, Any]:
    """What the JSON has, with its sentences and the points of a picture."""
    return {
        **epoch_document(epoch),
        "samples": [list(each) for each in epoch.samples],
        "chance_in_words": describe_chance(epoch) if epoch.worst.outcome != OUTCOMES[0] else "",
        "remedies_in_words": [describe_remedy(each) for each in epoch.remedies],
    }


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
