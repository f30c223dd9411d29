"""Every knob of a job on a device: those of its source, and those of the run around the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from oomproof.memory.about import About
from oomproof.memory.cards.devices import Device
from oomproof.sources.job import Job, Knob, Option, Settings
from oomproof.sources.python.words import role_of
from oomproof.sources.tensorflow_run_knobs import tensorflow_knobs

BF16 = (8, 0)
"""compute capability from which on bf16 has units of its own"""


def all_knobs(job: Job, settings: Settings, about: About, device: Device) -> tuple[Knob, ...]:
    """``about`` is what a trace of the job found."""
    found = (*map(_with_role, job.knobs(settings, about)), *run_knobs(settings, about, device))
    return _suit_knobs(found, device)


def _with_role(knob: Knob) -> Knob:
    """Knobs that users write seldom say what part they play: the name does, or that they cut a batch up."""
    if knob.role is not None:
        return knob
    cuts = "accumulate" in knob.options[0].settings
    return replace(knob, role="batch" if cuts else role_of(knob.name, None))


def run_knobs(settings: Settings, about: About, device: Device) -> tuple[Knob, ...]:
    """What may change about the run around a step."""
    if about.allocator == "bfc":
        return () if about.limits == "jax" else tensorflow_knobs(settings, device)
    found = []
    if settings.get("ddp") and not settings.get("gradient_as_bucket_view"):
        why = "DDP's gradients live in its buckets: no second copy"
        found.append(_on("gradient_as_bucket_view", True, why))
    if settings.get("cudnn_benchmark"):
        found.append(_on("cudnn_benchmark", False, "no trial runs with large workspaces; convolutions may be slower"))
    if not settings.get("expandable_segments"):
        found.append(_on("expandable_segments", True, "segments grow instead of leaving gaps"))
    return (*found, *_loader_knobs(settings))


def _loader_knobs(settings: Settings) -> Iterator[Knob]:
    """Of PyTorch's DataLoader. Where another setting says how many workers there are, it has a knob of its own."""
    workers, ready = settings.get("workers", 0), settings.get("prefetch_factor", 1)
    if workers and settings.name_of("workers") == "workers":
        why = "data may come too late; random augmentations draw otherwise"
        yield _fewer("workers", workers, "equivalent", why)
    if workers and ready > 1:
        yield _fewer("prefetch_factor", ready, "identical", "the same batches; fewer of them wait")


def _fewer(name: str, present: int, promise: str, why: str) -> Knob:
    """One by one, so that a plan takes no more away than it must."""
    values = range(present, 0, -1)
    return Knob(name, tuple(Option(value, {name: value}) for value in values), promise, why, host=True)


def _on(name: str, value: bool, why: str) -> Knob:
    return Knob(name, (Option(not value, {name: not value}), Option(value, {name: value})), "identical", why)


def _suit_knobs(knobs: Sequence[Knob], device: Device) -> tuple[Knob, ...]:
    """Without options that this device does not have: of the half precisions the one that suits it."""
    old = device.capability != (0, 0) and device.capability < BF16
    unsuited = "bf16" if old else "fp16"
    return tuple(
        replace(knob, options=tuple(option for option in knob.options if option.arithmetic != unsuited))
        for knob in knobs
    )
