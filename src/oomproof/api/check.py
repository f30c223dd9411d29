"""Will it fit? From a job and a device to a Forecast.

>>> import oomproof
>>> forecast = oomproof.check("torchvision:resnet50", on="RTX 3060", batch=64)   # doctest: +SKIP
>>> forecast.outcome, forecast.on_device.expected                                 # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oomproof.memory import make_forecast as forecaster
from oomproof.memory.cards.devices import Device, find
from oomproof.memory.forecast import Forecast
from oomproof.memory.host_memory import ram_of
from oomproof.memory.target import tracing_for
from oomproof.memory.timeline import Timeline
from oomproof.sources import as_job
from oomproof.sources.job import Job, Progress, Settings
from oomproof.sources.settings import resolve, settings_of

__all__ = ["check", "forecast", "resolve", "settings_of", "trace"]


def check(
    job: Any,
    on: str | Device,
    *,
    ram: str | int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Forecast:
    """Forecasts the memory of one training step of ``job`` on a device: a GPU's name, a size, ``this``. With ``ram``
    (``16GiB``), the outcome is also that of the host RAM."""
    granted = None if ram is None else ram_of(ram)
    device = find(on) if isinstance(on, str) else on
    opened = as_job(job, settings.get("backend", ""))
    resolved = resolve(opened, settings)
    return replace(forecast(trace(opened, resolved, progress, device), device, resolved), ram=granted)


def trace(job: Job, settings: Settings, progress: Progress | None = None, device: Device | None = None) -> Timeline:
    """The job's step as a Timeline. ``settings`` must be resolved: one value for every setting of the job. ``device``
    is for jobs that a compiler lays out; the Timelines of others hold for every device."""
    with tracing_for(device):
        return job.trace(settings, progress or (lambda text: None))


def forecast(timeline: Timeline, device: Device, settings: Settings) -> Forecast:
    """What a traced step means on a device."""
    traced = dict(timeline.about.get("settings", {}))
    name = str(timeline.about.get("job", "job"))
    return forecaster.forecast(timeline, device, forecaster.at_runtime(settings), name, {**traced, **settings})
