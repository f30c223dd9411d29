"""Micro-batches: the one knob that every training has, and when they give the same gradients."""

from __future__ import annotations

from oomproof.memory.about import About
from oomproof.sources.job import Knob, Option, Settings


def micro_batch(
    settings: Settings, about: About, *, mean_over_images: bool, by: str = "", exactly: str = ""
) -> Knob | None:
    """``by``: what accumulates; ``exactly``: what more must hold of a loss that is a mean over images."""
    name = settings.name_of("batch")
    if not name or "accumulate" not in settings or settings[name] < 2:
        return None
    whole, already = settings[name], settings["accumulate"]
    options = [
        Option(_said(size, already * whole // size), {name: size, "accumulate": already * whole // size})
        for size in range(whole, 0, -1)
        if whole % size == 0
    ]
    same = f"same effective batch{by and f' by {by}'}"
    if about.batchnorms:
        promise, why = "equivalent", f"{same}; BatchNorm takes its statistics from fewer images"
    elif not mean_over_images:
        promise, why = "equivalent", f"{same}; the loss may be divided by counts of the whole batch"
    elif not about.separable:
        promise, why = "equivalent", f"{same}; random draws fall on other images"
    else:
        promise, why = "identical", f"{same}: the loss is a mean over images{exactly and f' ({exactly})'}"
    return Knob(name, tuple(options), promise, why, role="batch")


def _said(size: int, count: int) -> str | int:
    return f"{size} x {count}" if count > 1 else size
