"""What a grid of what-ifs looks at: the axes that the user names, or those that people ask about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.grid import Axis
from oomproof.memory.sweep import measure_setting
from oomproof.sources.job import Job, Setting, Settings
from oomproof.sources.settings import resolve, settings_of

MOST_CELLS = 64
_VALUES = 3
"""of an axis that the user has not named"""
_STEP = 32


def name_axes(
    job: Job, start: Settings, given: Mapping[str, Any], asked: Mapping[str, Sequence[Any]]
) -> tuple[Axis, ...]:
    """Axes by the user's word, beside batch size, image size and precision. All their combinations are looked at."""
    usual = _usual_axes(job, start)
    batch, own = start.name_of("batch"), {}
    for word, texts in asked.items():
        name = batch if word == "batch" and batch else word
        if name not in start:
            raise InputError(f"what if {name}? This job has no such setting; it has {', '.join(sorted(start))}")
        own[name] = [resolve(job, {**given, name: text})[name] for text in texts]
    chosen = {name: values for name, values in {**usual, **own}.items() if len(values) > 1 or name in own}
    return tuple(_axis(start, name, values) for name, values in chosen.items())


def propose_axes(job: Job, start: Settings, runs: Callable[[Mapping[str, Any]], str | None]) -> tuple[Axis, ...]:
    """Axes where the user names none: batch size and precision in all their combinations; with each of these, image
    sizes and what people ask about besides (boxes, optimizer, recomputation), one at a time, since all combinations
    would take many times as long; where even one takes long, everything one at a time.

    ``runs`` tells whether the job can do with other values, by the name of its optimizer, or that it cannot, by None.
    """
    usual, size = _usual_axes(job, start), start.name_of("image size")
    axes = [
        _axis(start, name, values[-_VALUES:], alone=name == size or job.one_what_if_at_a_time)
        for name, values in usual.items()
        if len(values) > 1
    ]
    optimizer = (runs({}) or "").lower()
    for setting in (each for each in settings_of(job) if each.usual and each.name not in usual):
        values = [value for value in _others(setting, start, optimizer) if runs({setting.name: value}) is not None]
        if values:
            axes.append(_axis(start, setting.name, (start[setting.name], *values), alone=True))
    return tuple(axes)


def _others(setting: Setting, start: Settings, optimizer: str) -> Sequence[Any]:
    """What people ask about beside the job's own value; of optimizers, one that is not its own."""
    others = [value for value in dict.fromkeys((setting.default, *setting.usual)) if value != start[setting.name]]
    if setting.name != start.name_of("optimizer"):
        return others
    return [value for value in others if value != optimizer][:1]


def list_places(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """The cells of a grid, each by its place on every axis."""
    for place in product(*(range(len(axis.values)) for axis in axes)):
        if sum(axis.alone and at != axis.chosen for axis, at in zip(axes, place, strict=True)) <= 1:
            yield place


def refuse_too_many(axes: Sequence[Axis]) -> None:
    count = math.prod(len(axis.values) for axis in axes) if not any(axis.alone for axis in axes) else 0
    if count > MOST_CELLS:
        raise InputError(f"{count} combinations are too many, expected at most {MOST_CELLS}: name fewer values")


def _usual_axes(job: Job, start: Settings) -> dict[str, Sequence[Any]]:
    found: dict[str, Sequence[Any]] = {}
    batch, size, precision = (start.name_of(role) for role in ("batch", "image size", "precision"))
    if batch:
        found[batch] = _batches(start[batch], start.sharing)
    if size and isinstance(start[size], tuple):
        found[size] = _sizes(start[size])
    if precision:
        found[precision] = _precisions(job, precision, start[precision])
    return found


def _axis(start: Settings, name: str, values: Sequence[Any], *, alone: bool = False) -> Axis:
    """The job's own value is always one of them."""
    every = list(dict.fromkeys((*values, start[name])))
    if all(measure_setting(value) is not None for value in every):
        every.sort(key=lambda value: measure_setting(value) or 0)
    return Axis(name, tuple(every), every.index(start[name]), alone)


def _batches(batch: int, sharing: int) -> list[int]:
    """Halves and doubles, in what the GPUs that share a batch can share."""
    share = max(1, batch // sharing)
    return [images * sharing for images in sorted({max(1, share // 4), max(1, share // 2), share, share * 2})]


def _sizes(size: tuple[int, ...]) -> list[tuple[int, ...]]:
    """A smaller and a larger one beside it, in multiples that networks like.

    >>> _sizes((800, 1333)), _sizes((64, 64)), _sizes((32, 32))
    ([(608, 992), (800, 1333), (992, 1664)], [(32, 32), (64, 64), (96, 96)], [(32, 32), (64, 64)])
    """
    smaller = tuple(max(_STEP, min(round(0.75 * side / _STEP) * _STEP, side - _STEP)) for side in size)
    larger = tuple(max(round(1.25 * side / _STEP) * _STEP, side + _STEP) for side in size)
    return list(dict.fromkeys((smaller, size, larger)))


def _precisions(job: Job, name: str, own: Any) -> list[Any]:
    (setting,) = (each for each in settings_of(job) if each.name == name)
    halves = [choice for choice in setting.choices if "16" in choice and "mixed" not in own]
    return list(dict.fromkeys((own, *halves[:1])))
