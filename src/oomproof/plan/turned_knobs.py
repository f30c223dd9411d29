"""Knobs that are turned: their settings, their promise, and how a person would say them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from oomproof.sources.job import PROMISES, Knob, Option, Settings

Turned = tuple[Knob, Option]
"""a knob and the option it is turned to"""

NO_CHANGE = "no change"


def promise_of(knob: Knob, option: Option) -> str:
    return option.promise or knob.promise


def weakest_promise(turned: Sequence[Turned]) -> str:
    return max((promise_of(*each) for each in turned), key=PROMISES.index, default=PROMISES[0])


def with_turned(settings: Settings, turned: Sequence[Turned]) -> Settings:
    for _, option in turned:
        settings = settings.with_values(option.settings)
    return settings


def combine(knobs: Sequence[Knob]) -> list[tuple[Turned, ...]]:
    """Every choice of one option a knob that turns at least one; options that are present are left out."""
    every = (
        tuple((knob, option) for knob, option in zip(knobs, chosen, strict=True) if option is not knob.options[0])
        for chosen in itertools.product(*(knob.options for knob in knobs))
    )
    return [turned for turned in every if turned]


def describe_turned(turned: Sequence[Turned], modules: Sequence[str] = ()) -> str:
    """«batch 4 x 4, precision bf16, 5 modules computed again»"""
    words = [f"{knob.name} {_plain(option)}" for knob, option in turned]
    if modules:
        words.append(f"{len(modules)} module{'s' * (len(modules) > 1)} computed again")
    return ", ".join(words) or NO_CHANGE


def _plain(option: Option) -> str:
    if isinstance(option.value, tuple):
        return "x".join(map(str, option.value))
    return str(option.value).lower() if isinstance(option.value, bool) else str(option.value)
