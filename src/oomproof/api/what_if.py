"""What if? A job's forecasts over a grid of batch sizes, image sizes and precisions, on several cards.

Every cell is traced, so what a slider shows is what ``check`` would say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from oomproof.api.check import forecast_step
from oomproof.errors import CannotDo, InputError
from oomproof.memory.cards.devices import Device, find_device
from oomproof.memory.grid import Axis, Grid
from oomproof.memory.sweep import measure_setting
from oomproof.sources import as_job
from oomproof.sources.job import Job, Progress, Settings, TraceRequest
from oomproof.sources.least_memory import with_least
from oomproof.sources.settings import resolve, settings_of
from oomproof.trace.request import be_silent

__all__ = ["what_if"]

CARDS = ("8GiB", "RTX 3060 12GB", "T4", "RTX 4090", "A100-40GB", "H100")
"""beside the one that was asked for: one of each usual size"""
MOST_CELLS = 64
_STEP = 32


def what_if(
    job: Any,
    on: str | Device,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Grid:
    """Forecasts for every combination of values: of ``axes``, and of batch size, image size and precision where these
    say nothing of them. Each combination is traced."""
    device = find_device(on) if isinstance(on, str) else on
    opened, say = as_job(job, settings=settings), progress or be_silent
    start = resolve(opened, settings)
    chosen = tuple(_axis(start, name, values) for name, values in _axes(opened, start, settings, axes or {}).items())
    count = math.prod(len(axis.values) for axis in chosen)
    if count > MOST_CELLS:
        raise InputError(f"{count} combinations are too many, expected at most {MOST_CELLS}: name fewer values")
    cards = _cards(device)
    cells, refused = {}, {}
    for number, place in enumerate(product(*(range(len(axis.values)) for axis in chosen)), 1):
        say(f"what if, {number} of {count}")
        wanted = {axis.name: axis.values[at] for axis, at in zip(chosen, place, strict=True)}
        try:
            resolved = resolve(opened, {**settings, **wanted})
            request = TraceRequest(resolved, device)
            step = with_least(opened, request, opened.trace(request))
        except CannotDo as error:
            refused[place] = str(error)
            continue
        cells[place] = tuple(forecast_step(step, card, resolved) for card in cards)
    return Grid(chosen, cards, cells, refused)


def compare_cards(job: Job, device: Device, settings: Settings) -> Grid:
    """A job under resolved settings on the usual cards: a grid of one cell."""
    step, cards = job.trace(TraceRequest(settings, device)), _cards(device)
    return Grid((), cards, {(): tuple(forecast_step(step, card, settings) for card in cards)}, {})


def _cards(device: Device) -> tuple[Device, ...]:
    return (device, *(card for card in map(find_device, CARDS) if card.name != device.name))


def _axes(
    job: Job, start: Settings, given: Mapping[str, Any], asked: Mapping[str, Sequence[Any]]
) -> dict[str, Sequence[Any]]:
    found: dict[str, Sequence[Any]] = {}
    batch, size, precision = (start.name_of(role) for role in ("batch", "image size", "precision"))
    if batch:
        found[batch] = _batches(start[batch], start.sharing)
    if size and isinstance(start[size], tuple):
        found[size] = _sizes(start[size])
    if precision:
        found[precision] = _precisions(job, precision, start[precision])
    own = {}
    for word, texts in asked.items():
        name = batch if word == "batch" and batch else word
        if name not in start:
            raise InputError(f"what if {name}? This job has no such setting; it has {', '.join(sorted(start))}")
        own[name] = [resolve(job, {**given, name: text})[name] for text in texts]
    return {name: values for name, values in {**found, **own}.items() if len(values) > 1 or name in own}


def _axis(start: Settings, name: str, values: Sequence[Any]) -> Axis:
    """The job's own value is always one of them."""
    every = list(dict.fromkeys((*values, start[name])))
    if all(measure_setting(value) is not None for value in every):
        every.sort(key=lambda value: measure_setting(value) or 0)
    return Axis(name, tuple(every), every.index(start[name]))


def _batches(batch: int, sharing: int) -> list[int]:
    """Halves and doubles, in what the GPUs that share a batch can share."""
    share = max(1, batch // sharing)
    return [images * sharing for images in sorted({max(1, share // 4), max(1, share // 2), share, share * 2})]


def _sizes(size: tuple[int, ...]) -> list[tuple[int, ...]]:
    scaled = [tuple(max(_STEP, round(side * factor / _STEP) * _STEP) for side in size) for factor in (0.75, 1.25)]
    return [scaled[0], size, scaled[1]]


def _precisions(job: Job, name: str, own: Any) -> list[Any]:
    (setting,) = (each for each in settings_of(job) if each.name == name)
    halves = [choice for choice in setting.choices if "16" in choice and "mixed" not in own]
    return list(dict.fromkeys((own, *halves[:1])))
