"""The order of causes: the surest first, one of each id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from oomproof.diagnosis.diagnosis import Cause

MOST = 5


def rank_causes(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    best: dict[str, Cause] = {}
    for cause in causes:
        if cause.id not in best or cause.confidence > best[cause.id].confidence:
            best[cause.id] = cause
    order = sorted(best.values(), key=lambda cause: -cause.confidence)[:MOST]
    return tuple(replace(cause, confidence=round(min(0.99, cause.confidence), 2)) for cause in order)
