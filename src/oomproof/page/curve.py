"""Curves in as many points as a picture can show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from oomproof.memory.curve import Curve
from oomproof.memory.timeline import Ints

POINTS_OF_A_CELL = 100
"""of a grid, which may have 64 cells with several curves each"""


_SHORT, _TURNS = 100, 8
"""a stretch is short that lasts less than this part of the step; so many short ones in a row are phases by turns"""
_UNSEEN = 500
"""what lasts less than this part of the step cannot be seen"""


def curve_document(curve: Curve | None) -> dict[str, Any] | None:
    """All points with what was made at each."""
    if curve is None:
        return None
    return {
        "tick": curve.tick.tolist(),
        "kinds": {kind: held.tolist() for kind, held in curve.kinds.items()},
        "phases": list_phases(curve),
        "made": [list(each) for each in curve.made],
        "tensors": list(curve.tensors),
    }


def curve_of_cell(curve: Curve | None) -> dict[str, Any] | None:
    """Few points, each told by how it differs from the one before: most kinds change seldom, and zeros take little."""
    if curve is None:
        return None
    kept = _highest(curve.live, POINTS_OF_A_CELL)

    def find_changes(values: Ints) -> list[int]:
        changes: list[int] = np.diff(values[kept], prepend=0).tolist()
        return changes

    return {
        "tick": find_changes(curve.tick),
        "kinds": {kind: find_changes(held) for kind, held in curve.kinds.items() if held.any()},
        "phases": list_phases(curve),
    }


def list_phases(curve: Curve) -> list[tuple[int, str]]:
    """(tick, phase) wherever another phase begins that lasts long enough to be seen. TensorFlow runs backward pass and
    update by turns, thousands of times: such a stretch is one phase of both."""
    length = int(curve.tick[-1]) if len(curve.tick) else 0
    ends = [*(at for at, _ in curve.phases[1:]), length]
    stretches = [(at, name, max(0, end - at)) for (at, name), end in zip(curve.phases, ends, strict=False)]
    found: list[tuple[int, str]] = []
    for _, run in groupby(stretches, lambda each: each[2] > length / _SHORT):
        group = list(run)
        if len(group) >= _TURNS:
            found.append((group[0][0], _name_turns(group)))
        else:
            found += [(at, name) for at, name, ticks in group if ticks > length / _UNSEEN]
    return [each for place, each in enumerate(found) if not place or found[place - 1][1] != each[1]]


def _name_turns(group: Sequence[tuple[int, str, int]]) -> str:
    """The phases that take turns: "backward and optimizer"."""
    ticks: Counter[str] = Counter()
    for _, name, lasts in group:
        ticks[name] += lasts
    whole = sum(ticks.values())
    return " and ".join(name for name, lasts in ticks.most_common() if lasts >= whole / 10)


def _highest(live: Any, points: int) -> list[int]:
    """The fullest point of every stretch, so that the peak is always among them."""
    if len(live) <= points:
        return list(range(len(live)))
    edges = np.linspace(0, len(live), points + 1).astype(int)
    return [int(a + live[a:b].argmax()) for a, b in pairwise(edges) if b > a]
