"""How many images a micro-batch may have: less when memory ran out, and more again later."""

from __future__ import annotations

import math

FIRST_PATIENCE = 50
"""steps without a failure before a larger micro-batch is tried"""
LONGEST_PATIENCE = 6400


class Sizes:
    """``count(images)`` parts for a batch; ``note_failure(images)`` and ``note_success()`` tell how it went.

    A failure halves the micro-batch. After ``patience`` good steps one part less is tried; where that fails, the
    patience doubles, so that a size which does not fit is asked for ever more seldom.
    """

    def __init__(self, largest: int | None = None, floor: int = 1, patience: int = FIRST_PATIENCE) -> None:
        self.largest, self.floor, self.patience = largest, floor, patience
        self.most = largest
        """what the plan says; never more than that"""
        self._good = 0
        self._tried: int | None = None
        """the size that is tried now, in place of a smaller one that is known to fit"""
        self._known: int | None = None

    def count(self, images: int) -> int:
        return 1 if self.largest is None else max(1, math.ceil(images / self.largest))

    def note_failure(self, images: int) -> bool:
        """A micro-batch of so many images did not fit. Whether there is a smaller one to go on with."""
        self._good = 0
        if self._tried is not None and self._known is not None:
            self.largest, self._tried = self._known, None
            self.patience = min(2 * self.patience, LONGEST_PATIENCE)
            if self.largest < images:
                return True
        smaller = max(self.floor, math.ceil(images / 2))
        if smaller >= images:
            return False
        self.largest = smaller
        return True

    def note_success(self, images: int) -> int | None:
        """A step of ``images`` is done. The larger size that will be tried next, if any."""
        if self.largest is None or (self.most is not None and self.largest >= self.most) or self.largest >= images:
            return None
        self._good += 1
        if self._tried is not None and self._good >= self.patience:
            self._tried = None  # it has proved itself
        if self._good < self.patience:
            return None
        self._good = 0
        self._known = self.largest
        larger = math.ceil(images / max(1, self.count(images) - 1))
        self.largest = self._tried = larger if self.most is None else min(larger, self.most)
        return self.largest
