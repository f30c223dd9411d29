"""Curves in as many points as a picture can show."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from oomproof.memory.curve import Curve

POINTS_OF_A_CELL = 150
"""of a grid, which may have 64 cells"""


def curve_document(curve: Curve | None, points: int | None = None) -> dict[str, Any] | None:
    """All points with what was made at each, or ``points`` of them without."""
    if curve is None:
        return None
    kept = list(range(len(curve.tick))) if points is None else _highest(curve.live, points)
    return {
        "tick": curve.tick[kept].tolist(),
        "kinds": {kind: held[kept].tolist() for kind, held in curve.kinds.items()},
        "phases": [list(each) for each in curve.phases],
        "made": [list(each) for each in curve.made] if points is None else [],
    }


def _highest(live: Any, points: int) -> list[int]:
    """The fullest point of every stretch, so that the peak is always among them."""
    if len(live) <= points:
        return list(range(len(live)))
    edges = np.linspace(0, len(live), points + 1).astype(int)
    return [int(a + live[a:b].argmax()) for a, b in pairwise(edges) if b > a]
