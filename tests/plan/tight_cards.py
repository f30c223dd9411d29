"""Devices for plans: so large that a job fits by a given part."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from small_jobs import opened

import oomproof
from oomproof.memory.cards.devices import Device, find_device
from oomproof.memory.forecast import Forecast


@cache
def unbounded(name: str, **settings: Any) -> Forecast:
    return oomproof.check(opened(name), on="80GiB", **settings)


def card(name: str, part: float, **settings: Any) -> Device:
    """A device that leaves ``part`` of what the job would take at worst beside the CUDA context."""
    whole = unbounded(name, **settings)
    around = whole.on_device.high - whole.reserved.high
    return replace(find_device("8GiB"), name=f"{part:.0%}", total=int(around + part * whole.reserved.high))


def fit(name: str, part: float, *, settings: dict[str, Any] | None = None, **words: Any) -> oomproof.Plan:
    given = settings or {}
    return oomproof.fit(opened(name), on=card(name, part, **given), **words, **given)
