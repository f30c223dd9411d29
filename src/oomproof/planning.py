"""Make it fit: from a job and a device to a Plan.

>>> import oomproof
>>> plan = oomproof.fit("torchvision:maskrcnn_resnet50_fpn", on="RTX 3060", batch=16)   # doctest: +SKIP
>>> plan.fits, plan.settings["batch"], plan.settings["accumulate"]                       # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from oomproof.memory.devices import Device, find
from oomproof.memory.forecast import Forecast
from oomproof.plan import outlook, selection
from oomproof.plan.needs import needs
from oomproof.plan.plan import Plan
from oomproof.plan.search import Confirmed, Search
from oomproof.plan.tracing import Say, Tracing
from oomproof.plan.ways import Structure
from oomproof.sources import open_job
from oomproof.sources.job import Job, Knob
from oomproof.sources.settings import resolve

__all__ = ["Say", "fit", "knobs"]


def fit(
    job: str | Job,
    on: str | Device,
    *,
    keep: str = "equivalent",
    allow: Sequence[str] = (),
    progress: Say | None = None,
    **settings: Any,
) -> Plan:
    """The settings with which ``job`` fits a device at the least cost, and the effective batch it has now.

    ``keep`` is the weakest promise that a change may have: ``identical`` or ``equivalent``. ``allow`` names knobs that
    make another training and may be turned all the same, where nothing else fits. Ctrl-C gives the best so far.
    """
    began = time.monotonic()
    selection.check_words(keep, allow)
    planner = _opened(job, on, settings, progress)
    search = Search(planner.tracing, planner.settings, planner.turnable(keep, allow), tuple(allow))
    before, base = search.before()
    interrupted = False
    if not before.fits:
        try:
            search.run(base)
        except KeyboardInterrupt:
            if search.best is None and search.missed is None:
                raise
            interrupted = True
    plan = _plan(planner, search, base, before, keep, interrupted)
    return _timed(plan, time.monotonic() - began, planner.tracing.count)


def knobs(job: str | Job, on: str | Device, **settings: Any) -> tuple[Knob, ...]:
    """Everything that may be turned for this job on this device, with promises."""
    planner = _opened(job, on, settings, None)
    return planner.every


class _Planner:
    """A job on a device, with every knob it has. A small trace says which promises they keep."""

    def __init__(self, job: Job, device: Device, settings: Mapping[str, Any], say: Say) -> None:
        self.settings = settings
        self.tracing = Tracing(job, device, say)
        say("opening the job", 0.0)
        facts = self._facts()
        every = (*job.knobs(settings, facts), *selection.run_knobs(settings))
        self.every = selection.suited(every, device)

    def _facts(self) -> Mapping[str, Any]:
        from oomproof.plan.search import small_settings

        step, _ = self.tracing.trace(small_settings(self.settings), "tracing a small step")
        return step.about

    def turnable(self, keep: str, allow: Sequence[str]) -> tuple[Knob, ...]:
        selection.known(self.tracing.job.name, self.every, allow)
        return selection.allowed(self.every, keep, allow)


def _opened(job: str | Job, on: str | Device, settings: Mapping[str, Any], progress: Say | None) -> _Planner:
    device = find(on) if isinstance(on, str) else on
    opened = open_job(job) if isinstance(job, str) else job
    return _Planner(opened, device, resolve(opened, settings), progress or (lambda text, done: None))


def _plan(
    planner: _Planner, search: Search, base: Sequence[Structure], before: Forecast, keep: str, interrupted: bool
) -> Plan:
    tracing = planner.tracing
    if before.fits:
        return Plan(before.job, tracing.device, dict(search.settings), (), before, before, 1.0)
    chosen: Confirmed = search.best or search.missed or search.nearest(base)
    tracing.say("comparing with other ways", 0.97)
    wanted = () if search.best or interrupted else needs(search, base, planner.every, keep)
    structures = search.structures_for(base, chosen)
    return Plan(
        before.job,
        tracing.device,
        dict(chosen.settings),
        outlook.changes(search, base, before, chosen),
        before,
        chosen.forecast,
        chosen.seconds / search.seconds_before,
        outlook.alternatives(search, base, chosen.way),
        outlook.frontier(search, structures, chosen),
        wanted,
        interrupted,
    )


def _timed(plan: Plan, seconds: float, traces: int) -> Plan:
    from dataclasses import replace

    return replace(plan, seconds=seconds, traces=traces)
