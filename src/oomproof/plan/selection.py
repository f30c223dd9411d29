"""Which knobs a search may turn: those the user's promise covers, and those the user named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oomproof.errors import InputError, did_you_mean
from oomproof.memory.cards.devices import Device
from oomproof.plan.tensorflow_run import tensorflow_knobs
from oomproof.plan.ways import promise_of
from oomproof.sources.job import PROMISES, Knob, Option

KEEP = PROMISES[:2]
BF16 = (8, 0)
"""compute capability from which on bf16 has units of its own"""


def run_knobs(settings: Mapping[str, Any], facts: Mapping[str, Any], device: Device) -> tuple[Knob, ...]:
    """What may change about the run around a step; ``facts`` is the ``about`` of a trace."""
    if facts.get("allocator") == "bfc":
        return () if facts.get("limits") == "jax" else tensorflow_knobs(settings, device)
    found = []
    if settings.get("ddp") and not settings.get("gradient_as_bucket_view"):
        why = "DDP's gradients live in its buckets: no second copy"
        found.append(_on("gradient_as_bucket_view", True, why))
    if settings.get("cudnn_benchmark"):
        found.append(_on("cudnn_benchmark", False, "no trial runs with large workspaces; convolutions may be slower"))
    if not settings.get("expandable_segments"):
        found.append(_on("expandable_segments", True, "segments grow instead of leaving gaps"))
    return (*found, *_loader_knobs(settings))


def _loader_knobs(settings: Mapping[str, Any]) -> Iterator[Knob]:
    """Of PyTorch's DataLoader. Detectron2 has a key of its own for its workers."""
    workers, ready = settings.get("workers", 0), settings.get("prefetch_factor", 1)
    if workers and "DATALOADER.NUM_WORKERS" not in settings:
        why = "data may come too late; random augmentations draw otherwise"
        yield _fewer("workers", workers, "equivalent", why)
    if workers and ready > 1:
        yield _fewer("prefetch_factor", ready, "identical", "the same batches; fewer of them wait")


def _fewer(name: str, present: int, promise: str, why: str) -> Knob:
    """By halves, down to one."""
    values = [present]
    while values[-1] > 1:
        values.append(values[-1] // 2)
    return Knob(name, tuple(Option(value, {name: value}) for value in values), promise, why, host=True)


def _on(name: str, value: bool, why: str) -> Knob:
    return Knob(name, (Option(not value, {name: not value}), Option(value, {name: value})), "identical", why)


def suited(knobs: Sequence[Knob], device: Device) -> tuple[Knob, ...]:
    """Without options that this device does not have: of the half precisions the one that suits it."""
    old = device.capability != (0, 0) and device.capability < BF16
    unsuited = ("bf16", "mixed_bfloat16") if old else ("fp16", "mixed_float16")
    return tuple(
        replace(knob, options=tuple(option for option in knob.options if option.value not in unsuited))
        if knob.name == "precision"
        else knob
        for knob in knobs
    )


def check_words(keep: str, allow: Sequence[str], leave: Sequence[str] = ()) -> None:
    """What can be told before anything is traced."""
    both = [name for name in allow if name in leave]
    if both:
        raise InputError(f"{', '.join(both)} cannot be both allowed and left alone: leave one of them out")
    if keep not in KEEP:
        raise InputError(f"keep must be one of {', '.join(KEEP)}; got '{keep}'")
    if keep == PROMISES[0] and allow:
        raise InputError(
            f"keep identical and allow {', '.join(allow)} contradict each other: leave one of them out "
            "(keep equivalent, the default, lets allowed knobs be turned)"
        )


def known(job: str, knobs: Sequence[Knob], allow: Sequence[str]) -> None:
    """Every knob that was named is one of the job's."""
    names = [knob.name for knob in knobs]
    for name in allow:
        if name not in names:
            raise InputError(f"{job} has no knob '{name}'{did_you_mean(name, names, '.')} It has {', '.join(names)}")


def allowed(knobs: Sequence[Knob], keep: str, allow: Sequence[str] = (), leave: Sequence[str] = ()) -> tuple[Knob, ...]:
    """The knobs that may be turned, each with the options that may be taken (the present one first)."""
    limit = PROMISES.index(keep)
    chosen = []
    for knob in (knob for knob in knobs if knob.name not in leave):
        options = tuple(
            option
            for place, option in enumerate(knob.options)
            if place == 0 or PROMISES.index(promise_of(knob, option)) <= limit or knob.name in allow
        )
        if len(options) > 1 or knob.name == "checkpoint" or "accumulate" in options[0].settings:
            chosen.append(replace(knob, options=options))  # the search finds what to compute again, and scales batches
    return tuple(chosen)
