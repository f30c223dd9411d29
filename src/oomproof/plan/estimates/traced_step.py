"""A traced step: what every estimate starts from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oomproof.memory.timeline import Timeline
from oomproof.plan.estimates import what_if
from oomproof.plan.turned_knobs import Turned
from oomproof.sources.job import Settings


@dataclass(frozen=True, eq=False)
class TracedStep:
    """The job with some knobs turned that no what-if covers, traced for a number of images."""

    turned: tuple[Turned, ...]
    settings: Settings
    timeline: Timeline
    """with the least scratch that kernels can do with"""
    images: int
    lasting: int
    """bytes that are held all the time besides"""
    correction: float = 1.0
    """what a full trace found, as a factor of the estimate"""

    def correct(self, factor: float) -> TracedStep:
        return replace(self, correction=self.correction * factor)

    def resize(self, turned: Sequence[Turned], settings: Settings) -> TracedStep:
        """With everything of ``turned``, of which only sizes of images are new: by proportion, since all but what is
        counted in boxes grows with pixels."""
        timeline = self.timeline
        for knob, option in split_by_size(turned)[1]:
            factor = _pixels(option.value) / _pixels(knob.options[0].value)
            timeline = what_if.with_larger_images(timeline, factor)
        return replace(self, turned=tuple(turned), settings=settings, timeline=timeline)


def split_by_size(turned: Sequence[Turned]) -> tuple[tuple[Turned, ...], tuple[Turned, ...]]:
    """Knobs whose effect wants a trace, and sizes of images, whose effect is one of proportion."""
    by_size = tuple(each for each in turned if each[0].role == "image size")
    return tuple(each for each in turned if each not in by_size), by_size


def _pixels(size: Any) -> float:
    sides = size if isinstance(size, (tuple, list)) else (size, size)
    return float(math.prod(sides))
