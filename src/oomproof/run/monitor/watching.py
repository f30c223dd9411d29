"""What the callbacks of all frameworks do at every step: read memory, and say so when it leaks or spikes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from oomproof.memory.forecast import Forecast
from oomproof.run.monitor.monitor import Monitor

LOG = logging.getLogger("oomproof.guard")
EVERY = 50
"""steps between two looks at the trend"""


class Watch:
    """``step()`` after every step, ``end()`` after the last. ``log``: a file for lines of JSON. ``limit``: bytes of
    host RAM at which the training would die."""

    def __init__(
        self, log: str | Path | None = None, limit: int | None = None, tensorboard: Any = None,
        forecast: Forecast | None = None,
    ) -> None:  # fmt: skip
        self.monitor = Monitor(log, host_limit=limit, tensorboard=tensorboard, forecast=forecast)
        self.steps = 0
        self._said: set[str] = set()
        self._ended = False

    def step(self, **about: Any) -> None:
        self.steps += 1
        self.monitor.step(**about)
        if self.monitor.gap:
            self.say_once("gap", self.monitor.gap)
        if self.steps % EVERY == 0:
            found = self.monitor.verdict()
            if found.kind in ("leak", "spike"):
                self.say_once(found.kind, f"{found.kind}: {found.why}")

    def say_once(self, topic: str, what: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            LOG.warning(what)

    def end(self) -> None:
        """The summary, once."""
        if not self._ended:
            self._ended = True
            LOG.info(self.monitor.close())
