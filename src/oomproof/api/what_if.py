"""What if? A job's forecasts over a grid of settings, on several cards.

Every cell is traced, so what a slider shows is what ``check`` would say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from oomproof.api.check import forecast_step
from oomproof.api.grid_axes import list_places, name_axes, propose_axes, refuse_too_many
from oomproof.errors import CannotDo, JobError
from oomproof.memory.cards.devices import Device, find_device
from oomproof.memory.grid import Grid
from oomproof.memory.timeline import Timeline
from oomproof.sources import as_job
from oomproof.sources.job import Job, Progress, Settings, TraceRequest
from oomproof.sources.least_memory import with_least
from oomproof.sources.settings import resolve
from oomproof.trace.request import be_silent

__all__ = ["what_if"]

CARDS = ("8GiB", "RTX 3060 12GB", "T4", "RTX 4090", "A100-40GB", "H100")
"""beside the one that was asked for: one of each usual size"""


def what_if(
    job: Any,
    on: str | Device,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Grid:
    """Forecasts for every combination of values: of ``axes``, and of batch size, image size and precision where these
    say nothing of them. Without ``axes``: batch size and precision, and with each combination of these other image
    sizes, boxes, optimizers and recomputation, one at a time. Each combination is traced."""
    device = find_device(on) if isinstance(on, str) else on
    opened, say = as_job(job, settings=settings), progress or be_silent
    traces = _Traces(opened, device, settings, say)
    if not axes:
        traces.run({})  # options of a script are known only once it has run
    start = resolve(opened, settings)
    chosen = name_axes(opened, start, settings, axes) if axes else propose_axes(opened, start, traces.run)
    refuse_too_many(chosen)
    places, cards = list(list_places(chosen)), _cards(device)
    cells, refused, texts = {}, {}, {}
    began = time.monotonic()
    for done, place in enumerate(places):
        say(f"what if, {done + 1} of {len(places)}{_describe_rest(time.monotonic() - began, done, len(places))}")
        wanted = {axis.name: axis.values[at] for axis, at in zip(chosen, place, strict=True)}
        try:
            resolved, step = traces.take({name: value for name, value in wanted.items() if value != start[name]})
        except CannotDo as error:
            refused[place] = str(error)
            continue
        cells[place] = tuple(forecast_step(step, card, resolved) for card in cards)
        if text := opened.text_under(resolved):
            texts[place] = text
    return Grid(chosen, cards, cells, refused, texts)


class _Traces:
    """A job's steps under other settings; one that was traced to see whether the job can do it is not traced again."""

    def __init__(self, job: Job, device: Device, given: Mapping[str, Any], say: Progress) -> None:
        self.job, self.device, self.given, self.say = job, device, given, say
        self._kept: dict[tuple[tuple[str, str], ...], tuple[Settings, Timeline]] = {}

    def run(self, other: Mapping[str, Any]) -> str | None:
        """The name of the optimizer of a step under ``other`` settings; None where the job cannot do it."""
        self.say(f"what if: trying {', '.join(f'{name} {value}' for name, value in other.items()) or 'the job itself'}")
        try:
            found = self._kept.get(_key(other)) or self._trace(other)
        except (CannotDo, JobError):
            return None
        self._kept[_key(other)] = found
        return found[1].about.optimizer

    def take(self, other: Mapping[str, Any]) -> tuple[Settings, Timeline]:
        return self._kept.pop(_key(other), None) or self._trace(other)

    def _trace(self, other: Mapping[str, Any]) -> tuple[Settings, Timeline]:
        resolved = resolve(self.job, {**self.given, **other})
        request = TraceRequest(resolved, self.device)
        return resolved, with_least(self.job, request, self.job.trace(request))


def _key(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in settings.items()))


def _describe_rest(seconds: float, done: int, count: int) -> str:
    """
    >>> _describe_rest(60, 4, 24), _describe_rest(3, 4, 24), _describe_rest(9, 1, 24)
    (', about 5 min more', ', about 15 s more', '')
    """
    if done < 3:  # the first take longer than others
        return ""
    rest = seconds / done * (count - done)
    return f", about {rest / 60:.0f} min more" if rest >= 90 else f", about {rest:.0f} s more"


def compare_cards(job: Job, device: Device, settings: Settings) -> Grid:
    """A job under resolved settings on the usual cards: a grid of one cell."""
    step, cards = job.trace(TraceRequest(settings, device)), _cards(device)
    return Grid((), cards, {(): tuple(forecast_step(step, card, settings) for card in cards)}, {})


def _cards(device: Device) -> tuple[Device, ...]:
    return (device, *(card for card in map(find_device, CARDS) if card.name != device.name))
