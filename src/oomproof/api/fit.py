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

from oomproof.api.check import Data, find_dataset
from oomproof.epoch.job_with_data import JobWithData
from oomproof.epoch.worst_batch import find_worst_batch
from oomproof.errors import InputError
from oomproof.memory.cards.beside import hold_beside
from oomproof.memory.cards.devices import Device, find_device
from oomproof.memory.forecast import Forecast
from oomproof.memory.host_memory import ram_of, shm_of
from oomproof.plan import host_ram, selection
from oomproof.plan.confirmed import Confirmed
from oomproof.plan.first_trace import first_trace
from oomproof.plan.plan import Plan
from oomproof.plan.problem import Problem
from oomproof.plan.remarks.alternatives import find_alternatives
from oomproof.plan.remarks.figures import Figures
from oomproof.plan.remarks.needs import find_needs
from oomproof.plan.remarks.points import find_points
from oomproof.plan.remarks.shares import sets_to_trace, share_out
from oomproof.plan.search import Search
from oomproof.plan.tracing import Say, Tracing
from oomproof.sources import as_job
from oomproof.sources.job import Knob, Settings
from oomproof.sources.run_knobs import all_knobs
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

__all__ = ["Say", "fit", "list_knobs"]


def fit(
    job: Any,
    on: str | Device,
    *,
    keep: str = "equivalent",
    allow: Sequence[str] = (),
    leave: Sequence[str] = (),
    data: Data = None,
    grouping: bool | None = None,
    ram: str | int | None = None,
    shm: str | int | None = None,
    beside: str | int | None = None,
    progress: Say | None = None,
    **settings: Any,
) -> Plan:
    """The settings with which ``job`` fits a device at the least cost, and the effective batch it has now.

    ``keep`` is the weakest promise that a change may have: ``identical`` or ``equivalent``. ``allow`` names knobs that
    make another training and may be turned all the same, where nothing else fits; ``leave`` names knobs that stay as
    they are. With ``data`` the worst batch that an epoch can make has to fit, as in ``oomproof.check``. ``ram``
    (``16GiB``) is what the job may take of the host's, ``shm`` (``64MiB``) what /dev/shm can hold: where its data take
    more, their buffers and workers become fewer. ``beside`` (``3GiB``): what another job holds on the device. Ctrl-C
    gives the best so far.
    """
    began = time.monotonic()
    selection.check_words(keep, allow, leave)
    granted, shared = None if ram is None else ram_of(ram), None if shm is None else shm_of(shm)
    device = hold_beside(find_device(on) if isinstance(on, str) else on, beside)
    tracing, start = _open(job, device, settings, progress)
    dataset, _ = find_dataset(tracing.job, data, lambda doing: tracing.say(doing, 0.0))
    if dataset is not None:
        tracing.job = JobWithData(tracing.job.with_data(dataset), dataset, grouping)
    every = _find_knobs(tracing, start)
    selection.refuse_unknown_knobs(tracing.job.name, every, (*allow, *leave))
    _check_host_knobs(every, allow, limited=granted is not None or shared is not None)
    turnable = selection.select_knobs(every, keep, allow, leave)
    of_device, of_host = (tuple(knob for knob in turnable if knob.host is host) for host in (False, True))
    others = tuple(knob for knob in every if knob.name not in leave)
    plan = _plan(
        Problem(
            tracing.job,
            tracing.device,
            start,
            of_device,
            tuple(allow),
            keep,
            tuple(knob for knob in others if not knob.host),
        ),
        tracing,
    )
    if isinstance(tracing.job, JobWithData):
        plan = _with_worst_batch(plan, tracing, tracing.job)
    if granted is not None or shared is not None:
        plan = host_ram.within(plan, granted, tracing, of_host, tuple(knob for knob in others if knob.host), shm=shared)
    own = tuple(setting.name for setting in tracing.job.settings if setting.own)
    return replace(plan, own=own, seconds=time.monotonic() - began, traces=tracing.count)


def _with_worst_batch(plan: Plan, tracing: Tracing, job: JobWithData) -> Plan:
    """The plan held against the worst batch under its own settings, looked for anew."""
    if plan.interrupted:
        return plan
    request = TraceRequest(plan.settings, tracing.device, progress=lambda text: tracing.say(text, 0.95))
    if job.batch_rule(plan.settings).same:
        return plan
    found = find_worst_batch(job.job, job.dataset, request, job.grouped)
    return replace(plan, after=found.forecast, before=plan.before if plan.changes else found.forecast)


def list_knobs(job: Any, on: str | Device, **settings: Any) -> tuple[Knob, ...]:
    """Everything that may be turned for this job on this device, with promises."""
    return _find_knobs(*_open(job, on, settings, None))


def _open(job: Any, on: str | Device, settings: Mapping[str, Any], progress: Say | None) -> tuple[Tracing, Settings]:
    """A job on a device, ready to be traced, and the settings to start from."""
    device = find_device(on) if isinstance(on, str) else on
    opened = as_job(job, settings=settings)
    start = opened.settings_for_plans(resolve(opened, settings))
    return Tracing(opened, device, progress or (lambda text, done: None)), start


def _find_knobs(tracing: Tracing, settings: Settings) -> tuple[Knob, ...]:
    """Every knob of the job. A first trace says which promises they keep."""
    return all_knobs(tracing.job, settings, first_trace(tracing, settings).about, tracing.device)


def _check_host_knobs(every: Sequence[Knob], allow: Sequence[str], *, limited: bool) -> None:
    of_host = [knob.name for knob in every if knob.host and knob.name in allow]
    if of_host and not limited:
        raise InputError(
            f"{of_host[0]} saves host RAM alone, and plans look at that where they are told how much there is: "
            "give ram=16GiB (--ram 16GiB) as well"
        )


def _plan(problem: Problem, tracing: Tracing) -> Plan:
    """The device's side of a plan; after Ctrl-C the best so far, without what would have been told beside it."""
    search = Search(problem, tracing)
    before = search.begin()
    if before.fits:
        settings, tried = problem.settings, tuple(search.attempts)
        return Plan(before.job, before.device, settings, (), before, before, 1.0, attempts=tried)
    plan: Plan | None = None
    try:
        search.run()
        chosen = search.best or search.missed or search.find_nearest()
        plan = _with_changes(search, before, chosen)
        tracing.say("comparing with other ways", 0.92)
        estimates = search.estimates
        figures = Figures(estimates, search.attempts)
        plan = replace(
            plan,
            alternatives=find_alternatives(estimates, figures, search.looked_at, chosen.way, plan.time),
            frontier=find_points(estimates, figures, search.looked_at, before, chosen),
            needs=() if chosen.forecast.fits else _find_needs(search),
        )
    except KeyboardInterrupt:
        so_far = search.best or search.missed
        if so_far is None:
            raise
        plan = replace(plan or _with_changes(search, before, so_far), interrupted=True)
    return replace(plan, attempts=tuple(search.attempts))


def _find_needs(search: Search) -> tuple[str, ...]:
    """What would have to be allowed, and what else there is."""
    problem = search.problem
    needs = find_needs(problem, search.estimates, search.tracer)
    return (*needs, *problem.job.describe_other_ways(problem.settings))


def _with_changes(search: Search, before: Forecast, chosen: Confirmed) -> Plan:
    estimates = search.trace_each(sets_to_trace(search.problem, chosen.way))
    return Plan(
        job=before.job,
        device=before.device,
        settings=chosen.settings,
        changes=share_out(estimates, before, chosen),
        before=before,
        after=chosen.forecast,
        time=estimates.time(chosen.seconds),
        before_estimated=search.before_estimated,
    )
