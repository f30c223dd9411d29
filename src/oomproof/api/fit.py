"""Make it fit: from a job and a device to a Plan.

>>> import oomproof
>>> plan = oomproof.fit("torchvision:maskrcnn_resnet50_fpn", on="RTX 3060", batch=16)   # doctest: +SKIP
>>> plan.fits, plan.settings["batch"], plan.settings["accumulate"]                       # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.cards.devices import Device, find
from oomproof.memory.forecast import Forecast
from oomproof.memory.host_memory import ram_of
from oomproof.plan import host_ram as host
from oomproof.plan import outlook, selection
from oomproof.plan.first_trace import first_trace
from oomproof.plan.needs import needs
from oomproof.plan.plan import Plan
from oomproof.plan.search import Confirmed, Search
from oomproof.plan.tracing import Say, Tracing
from oomproof.sources import as_job
from oomproof.sources.job import Job, Knob, Settings
from oomproof.sources.run_knobs import all_knobs
from oomproof.sources.settings import resolve

__all__ = ["Say", "fit", "list_knobs"]


def fit(
    job: Any,
    on: str | Device,
    *,
    keep: str = "equivalent",
    allow: Sequence[str] = (),
    leave: Sequence[str] = (),
    ram: str | int | None = None,
    progress: Say | None = None,
    **settings: Any,
) -> Plan:
    """The settings with which ``job`` fits a device at the least cost, and the effective batch it has now.

    ``keep`` is the weakest promise that a change may have: ``identical`` or ``equivalent``. ``allow`` names knobs that
    make another training and may be turned all the same, where nothing else fits; ``leave`` names knobs that stay as
    they are. ``ram`` (``16GiB``) is what the job may take of the host's: where its data take more, their buffers and
    workers become fewer. Ctrl-C gives the best so far.
    """
    began = time.monotonic()
    selection.check_words(keep, allow, leave)
    granted = None if ram is None else ram_of(ram)
    planner = _opened(job, on, settings, progress)
    turnable = planner.turnable(keep, allow, leave, granted)
    on_device = tuple(knob for knob in turnable if not knob.host)
    search = Search(planner.tracing, planner.settings, on_device, tuple(allow))
    before = search.before()
    if before.fits:
        plan = Plan(before.job, before.device, search.settings, (), before, before, 1.0)
    else:
        plan = _found(planner, search, before, keep)
    if granted is not None:
        at_hand = tuple(knob for knob in turnable if knob.host)
        plan = host.within(plan, granted, planner.tracing, at_hand, planner.others(of_host=True))
    own = tuple(setting.name for setting in planner.tracing.job.settings if setting.own)
    return replace(plan, own=own, seconds=time.monotonic() - began, traces=planner.tracing.count)


def list_knobs(job: Any, on: str | Device, **settings: Any) -> tuple[Knob, ...]:
    """Everything that may be turned for this job on this device, with promises."""
    planner = _opened(job, on, settings, None)
    return planner.every


class _Planner:
    """A job on a device, with every knob it has. A first trace says which promises they keep."""

    def __init__(self, job: Job, device: Device, settings: Settings, say: Say) -> None:
        self.settings = settings
        self.left: Sequence[str] = ()
        self.tracing = Tracing(job, device, say)
        self.every = all_knobs(job, settings, first_trace(self.tracing, settings).about, device)

    def others(self, *, of_host: bool = False) -> tuple[Knob, ...]:
        """What the user might still allow."""
        return tuple(knob for knob in self.every if knob.name not in self.left and knob.host is of_host)

    def turnable(self, keep: str, allow: Sequence[str], leave: Sequence[str], ram: int | None) -> tuple[Knob, ...]:
        selection.known(self.tracing.job.name, self.every, (*allow, *leave))
        of_host = [knob.name for knob in self.every if knob.host and knob.name in allow]
        if of_host and ram is None:
            raise InputError(
                f"{of_host[0]} saves host RAM alone, and plans look at that where they are told how much there is: "
                "give ram=16GiB (--ram 16GiB) as well"
            )
        self.left = leave
        return selection.allowed(self.every, keep, allow, leave)


def _opened(job: Any, on: str | Device, settings: Mapping[str, Any], progress: Say | None) -> _Planner:
    device = find(on) if isinstance(on, str) else on
    opened = as_job(job, settings=settings)
    start = opened.settings_for_plans(resolve(opened, settings))
    return _Planner(opened, device, start, progress or (lambda text, done: None))


def _found(planner: _Planner, search: Search, before: Forecast, keep: str) -> Plan:
    """The plan; after Ctrl-C the best so far, without what would have been told beside it."""
    plan: Plan | None = None
    try:
        search.run()
        chosen = search.best or search.missed or search.nearest()
        plan = _plan(search, before, chosen)
        planner.tracing.say("comparing with other ways", 0.92)
        return replace(
            plan,
            alternatives=outlook.alternatives(search, search.base, chosen.way),
            frontier=outlook.frontier(search, search.base, before, chosen),
            needs=() if chosen.forecast.fits else needs(search, search.base, planner.others(), keep),
        )
    except KeyboardInterrupt:
        so_far = search.best or search.missed
        if so_far is None:
            raise
        return replace(plan or _plan(search, before, so_far), interrupted=True)


def _plan(search: Search, before: Forecast, chosen: Confirmed) -> Plan:
    return Plan(
        job=before.job,
        device=before.device,
        settings=chosen.settings,
        changes=outlook.changes(search, search.base, before, chosen),
        before=before,
        after=chosen.forecast,
        time=chosen.seconds / search.seconds_before,
        before_estimated=search.before_estimated,
    )
