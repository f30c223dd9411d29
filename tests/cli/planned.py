"""A planner that gives the plan a test wants, and a job that shows what was written into it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import oomproof
from oomproof.memory.cards.devices import Device
from oomproof.memory.settings import Role, Settings
from oomproof.plan.plan import Change, Plan, Point
from oomproof.sources.job import Job

Say = Callable[[str, float], None]


ROLES: dict[Role, str] = {"batch": "batch"}


class Jotter:
    """A job that can be written: what was asked of it, and a file that shows it."""

    name = "hand-made"
    settings = ()

    def __init__(self, folder: Path) -> None:
        self.place = folder / "own.json"

    def write(self, settings: dict[str, Any], target: Path | None, *, device: str, changes: Sequence[str]) -> str:
        assert device == "8.00 GiB" and list(changes) == ["batch: 16 -> 4 x 4"]
        path = target or self.place
        path.write_text(json.dumps(dict(settings)))
        return f"wrote {path}; paste this:\nimport oomproof\n"

    def show_change(self, settings: dict[str, Any]) -> str:
        return ""


class Asked:
    """What the planner was asked, and the plan it is to give."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.plan: Callable[[Plan], Plan] = lambda plan: plan
        self.calls: list[dict[str, Any]] = []

    def fit(
        self,
        job: Job,
        on: Device,
        *,
        keep: str,
        allow: Sequence[str],
        leave: Sequence[str],
        progress: Callable[[str, float], None],
        **given: Any,
    ) -> Plan:
        self.calls.append({"job": job, "on": on, "keep": keep, "allow": allow, "leave": leave, **given})
        progress("tracing the job as it is", 0.1)
        progress("looking at batch 4 x 4", 0.6)
        after = oomproof.check(self.step, on)
        change = Change("batch", 16, "4 x 4", "identical", "mean over images", 1 << 30, 1.05, {"batch": 4})
        points = (Point(9 << 30, 1.0, "identical", ""), Point(2 << 30, 1.05, "identical", "batch 4 x 4", chosen=True))
        before = replace(after, settings=Settings({"batch": 16, "accumulate": 1}, ROLES))
        settings = Settings({"batch": 4, "accumulate": 4}, ROLES)
        return self.plan(Plan(job.name, on, settings, (change,), before, after, 1.05, frontier=points, traces=3))
