"""What is told of a way beside the plan: one set of figures, however often the way is named."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.way import Way
from oomproof.plan.plan import Attempt


class Figures:
    """Those of a full trace where there was one; else the estimate that was told first."""

    def __init__(self, estimates: Estimates, attempts: Sequence[Attempt]) -> None:
        self._estimates = estimates
        self._told: dict[str, tuple[int, float]] = {}
        self._missed: set[str] = set()
        for each in attempts:
            if each.device is not None and each.time is not None:
                self._told[each.tried] = each.device, each.time
                self._missed |= {each.tried} if each.outcome != "fits" else set()

    def find(self, way: Way) -> tuple[int, float]:
        """(bytes on the device at the upper figure, time per image as a factor of the job as it was)"""
        estimates = self._estimates
        return self._told.setdefault(way.words, (estimates.room.on_device(way.peak), estimates.time(way.seconds)))

    def has_missed(self, way: Way) -> bool:
        """Whether a full trace showed that it does not fit, whatever its estimate says."""
        return way.words in self._missed
