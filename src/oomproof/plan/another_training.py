"""Knobs that make another training: tried last, by rising harm, until one combination fits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.errors import InputError, JobError
from oomproof.plan import what_if
from oomproof.plan.ways import Structure, Turned
from oomproof.sources.job import PROMISES, Knob

if TYPE_CHECKING:
    from oomproof.plan.search import Search

MOST_COMBINATIONS, MOST_TRACES = 240, 40
"""those looked at, and the traces they may take together"""
MOST_TRIES = 6
"""of those that look as if they would fit"""


def settle(search: Search, base: Sequence[Structure]) -> None:
    """Confirms the least harm that fits, among combinations of the knobs that were allowed."""
    tried = 0
    for _, structures in harms(search, base, [knob for knob in search.knobs if knob.promise == PROMISES[2]]):
        if not search.settle(list(structures), tries=1):
            continue
        if search.best is None:  # the estimate was by proportion: a trace knows better
            search.settle(list(filter(None, (search.retraced_if_it_runs(each.turned) for each in structures))))
        tried += 1
        if search.best is not None or tried >= MOST_TRIES:
            return


def harms(
    search: Search, base: Sequence[Structure], knobs: Sequence[Knob]
) -> Iterator[tuple[tuple[Turned, ...], list[Structure]]]:
    """Combinations of ``knobs`` by rising harm, each with structures estimated or traced for it; those that the job
    cannot run are left out."""
    by_harm = sorted(combinations(knobs), key=lambda turned: sum(option.harm for _, option in turned))
    precision = next((knob for knob in search.knobs if knob.role == "precision"), None)
    starts: list[tuple[Turned, ...]] = [()]
    if precision is not None:
        starts.append(((precision, precision.options[-1]),))
    most = search.tracing.count + MOST_TRACES
    for turned in by_harm[:MOST_COMBINATIONS]:
        if search.tracing.count >= most:
            return
        try:
            found = [structure(search, base, (*start, *turned)) for start in starts]
        except (InputError, JobError):  # a network that cannot be cut, a library that is not installed
            continue
        yield turned, found


def structure(search: Search, base: Sequence[Structure], turned: tuple[Turned, ...]) -> Structure:
    """By proportion where the effect is one of proportion, else by a trace of the small batch."""
    by_size = [each for each in turned if each[0].role == "image size"]
    traced = tuple(each for each in turned if each not in by_size)
    start = search.retraced(traced) if traced else base[0]
    step = start.step
    for knob, option in by_size:
        step = what_if.with_larger_images(step, _pixels(option.value) / _pixels(knob.options[0].value))
    return replace(start, turned=turned, settings=search.with_turned(turned), step=step)


def combinations(knobs: Sequence[Knob]) -> list[tuple[Turned, ...]]:
    """Every choice of one option a knob that turns at least one; options that are present are left out."""
    every = (
        tuple((knob, option) for knob, option in zip(knobs, chosen, strict=True) if option is not knob.options[0])
        for chosen in itertools.product(*(knob.options for knob in knobs))
    )
    return [turned for turned in every if turned]


def _pixels(size: Any) -> float:
    sides = size if isinstance(size, (tuple, list)) else (size, size)
    return float(math.prod(sides))
