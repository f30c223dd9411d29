"""Memory that kernels take while they run and no tensor shows, priced call by call for a device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oomproof.memory.scratch.calls import Call, read_call
from oomproof.memory.timeline import Ints, Timeline

Price = Callable[[Call], tuple[int, int, int]]
"""(expected, low, high) bytes of one call"""

_MOST = 1 << 50


def price_calls(timeline: Timeline, price: Price) -> tuple[Ints, Ints, Ints]:
    """Scratch of every call: expected, low, high. A spec is priced once, however often it is called."""
    prices = [price(read_call(spec)) for spec in timeline.calls.specs]
    table = np.array([[min(each, _MOST) for each in row] for row in prices], dtype=np.int64).reshape(-1, 3)
    rows = table[timeline.calls.spec]
    return rows[:, 0], rows[:, 1], rows[:, 2]
