"""Forecast against reality: two real steps of a job on this machine.

>>> import oomproof
>>> found = oomproof.measure("torchvision:resnet18", batch=2)      # doctest: +SKIP
>>> found.error                                                    # of the allocated peak, as a part of the real one
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomproof.api.check import forecast_step
from oomproof.errors import CannotDo, InputError, JobError
from oomproof.memory.about import About
from oomproof.memory.cards.devices import find_device
from oomproof.memory.forecast import Forecast
from oomproof.sources import as_job
from oomproof.sources.settings import resolve
from oomproof.trace.request import Progress, be_silent

if TYPE_CHECKING:
    from oomproof.trace.torch.real_step import RealStep


_GIB = 1 << 30


@dataclass(frozen=True)
class Measurement:
    forecast: Forecast
    real: RealStep
    device: str
    """cpu, or the GPU's name"""

    @property
    def error(self) -> float:
        return (self.forecast.allocated.expected - self.real.allocated) / self.real.allocated


def measure(job: Any, *, progress: Progress | None = None, **settings: Any) -> Measurement:
    """Traces the job, then really runs two of its steps: on this machine's GPU where PyTorch has one, else on the CPU,
    whose kernels the forecast then assumes too."""
    say = progress or be_silent
    opened = as_job(job, settings=settings)
    _refuse_without_torch()
    from oomproof.sources.torch.job import TorchJob
    from oomproof.trace.torch.real_job import pieces_and_training, real_device
    from oomproof.trace.torch.real_step import run_two_steps
    from oomproof.trace.torch.trace_step import trace_step

    resolved = resolve(opened, settings)
    made, of_training = opened.torch_pieces(resolved) if hasattr(opened, "torch_pieces") else (opened, resolved)
    if not isinstance(made, TorchJob):
        raise CannotDo(
            f"{opened.name} cannot be measured: {made.not_measured}. PyTorch jobs can: torchvision:NAME, Detectron2 "
            "configs, FILE.py:FUNCTION that makes a TorchJob"
        )
    pieces, training = pieces_and_training(made, of_training)
    name, device = real_device()
    on = find_device("this" if name != "cpu" else "1024GiB")
    say("tracing")
    about = About(job=opened.name, settings=resolved)
    step = trace_step(pieces, training, dialect="cuda" if name != "cpu" else "cpu", about=about)
    traced = forecast_step(step, on, resolved)
    if name == "cpu":
        _refuse_too_large(traced)
    say("running two real steps")
    return Measurement(traced, run_two_steps(pieces, training, device), name)


def _refuse_too_large(forecast: Forecast) -> None:
    """A step that the host has no room for would take other processes with it."""
    import psutil

    free, wanted = psutil.virtual_memory().available, forecast.allocated.expected
    if wanted > free:
        raise JobError(
            f"two real steps would take {wanted / _GIB:.1f} GiB of RAM, and {free / _GIB:.1f} GiB are free here: "
            "measure with a smaller --batch or --image-size"
        )


def refuse_without_gpu() -> None:
    """What is kept is a GPU's."""
    _refuse_without_torch()
    from oomproof.trace.torch.real_job import real_device

    if real_device()[0] == "cpu":
        raise InputError("--keep keeps a GPU's constants, and PyTorch sees no GPU here: measure without it")


def _refuse_without_torch() -> None:
    if find_spec("torch") is None:
        raise InputError("measure runs PyTorch jobs, and PyTorch is not installed here: pip install 'oomproof[torch]'")


def keep_measurement(found: Measurement) -> Path:
    """Writes the machine's constants to the user's configuration folder; returns the file."""
    from importlib.metadata import version

    from oomproof.memory.cards.kept_constants import Constants, keep_constants
    from oomproof.memory.cards.this_machine import driver_version, short_name

    real = found.real
    if real.context is None or real.context <= 0 or real.workspace is None:
        raise CannotDo("the driver does not tell what this process holds, so there is nothing to keep")
    versions = f"PyTorch {version('torch')}, driver {driver_version() or 'unknown'}"
    return keep_constants(
        short_name(found.device), Constants(real.context, real.workspace, found.forecast.job, versions)
    )
