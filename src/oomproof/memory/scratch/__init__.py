"""Memory that kernels take while they run and no tensor shows, priced call by call for a device."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from oomproof.memory.timeline import Ints, Timeline

Price = Callable[[Mapping[str, Any]], tuple[int, int, int]]
"""(expected, low, high) bytes of one call, from its spec"""


def priced(timeline: Timeline, price: Price) -> tuple[Ints, Ints, Ints]:
    """Scratch of every call: expected, low, high. A spec is priced once, however often it is called."""
    table = np.array([price(json.loads(spec)) for spec in timeline.calls.specs], dtype=np.int64).reshape(-1, 3)
    rows = table[timeline.calls.spec]
    return rows[:, 0], rows[:, 1], rows[:, 2]
