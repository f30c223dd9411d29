"""Turned knobs in words, for progress and reports."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.plan.ways import Turned, Way
from oomproof.sources.job import Option

NO_CHANGE = "no change"


def described(turned: Sequence[Turned], way: Way | None = None) -> str:
    """«batch 4 x 4, precision bf16, 5 modules computed again»"""
    words = [f"{knob.name} {_plain(option)}" for knob, option in turned]
    if way is not None and way.choice.modules:
        count = len(way.choice.modules)
        words.append(f"{count} module{'s' * (count > 1)} computed again")
    return ", ".join(words) or NO_CHANGE


def _plain(option: Option) -> str:
    if isinstance(option.value, tuple):
        return "x".join(map(str, option.value))
    return str(option.value).lower() if isinstance(option.value, bool) else str(option.value)
