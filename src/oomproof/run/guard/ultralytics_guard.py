"""``oomproof.ultralytics.Guard(model)`` before ``model.train(...)``: memory of every batch, leak or spike.

It watches only. Ultralytics halves the batch by itself when memory runs out in the first epoch; its networks normalise
over the batch and its losses are divided by what a batch has, so no split would be the same training. What it changed
is told here, with the images that an update has from then on.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from oomproof.memory.forecast import Forecast
from oomproof.run.monitor.watching import Watch

LOG = logging.getLogger("oomproof.guard")


class Guard:
    """Takes what Monitor takes. With several GPUs Ultralytics trains in processes of its own, which callbacks of the
    model do not reach."""

    def __init__(
        self, model: Any, *, log: str | Path | None = None, limit: int | None = None, tensorboard: Any = None,
        forecast: Forecast | None = None,
    ) -> None:  # fmt: skip
        self._given = (log, limit, tensorboard, forecast)
        self._size = (0, 0)
        self.watch: Watch | None = None
        for event, action in (
            ("on_train_start", self._begin),
            ("on_train_batch_end", self._step),
            ("on_train_end", self._end),
        ):
            model.add_callback(event, action)

    def _begin(self, trainer: Any) -> None:
        self.watch = Watch(*self._given)
        self._size = _size_of(trainer)

    def _step(self, trainer: Any) -> None:
        assert self.watch is not None
        before, self._size = self._size, _size_of(trainer)
        if self._size[0] != before[0]:
            LOG.warning(
                f"step {self.watch.steps + 1}: Ultralytics ran out of memory and went from batches of {before[0]} to "
                f"{self._size[0]}: an update will have {self._size[0] * self._size[1]} images instead of "
                f"{before[0] * before[1]} once it has warmed up"
            )
        self.watch.step(images=self._size[0])

    def _end(self, trainer: Any) -> None:
        if self.watch is not None:
            self.watch.end()


def _size_of(trainer: Any) -> tuple[int, int]:
    """Images of a batch, and batches of an update: Ultralytics fills updates up to ``nbs`` images."""
    batch = int(trainer.batch_size)
    return batch, max(round(trainer.args.nbs / batch), 1)
