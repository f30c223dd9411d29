"""Memory at every step of a training, kept as lines of JSON, with a verdict at any time.

monitor = Monitor("memory.jsonl", limit=8 << 30)
for batch in loader:
    ...
    monitor.step()
print(monitor.verdict().why)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oomproof.run.monitor.meters import host_bytes, shm_bytes
from oomproof.run.monitor.verdict import Reading, Verdict, judge

COST = 0.004
"""part of the time that reading host memory may take; the readings of PyTorch's own counters are free beside it"""
MOST = 20_000
"""readings that are kept: every second one is dropped then"""

Meter = Callable[[], tuple[int, int]]
"""(now, most since the last time) in bytes"""


class Monitor:
    """``step()`` after every step; ``history`` has the device's readings, ``host`` the host's, which cost time and are
    taken as often as COST allows."""

    def __init__(
        self, path: str | Path | None = None, limit: int | None = None, host_limit: int | None = None,
        device: Meter | None = None,
    ) -> None:  # fmt: skip
        self.limit, self.host_limit = limit, host_limit
        self.history: list[Reading] = []
        self.host: list[Reading] = []
        self._device = device if device is not None else _torch_meter()
        self._file = Path(path).open("a") if path is not None else None  # noqa: SIM115
        self._begin = time.perf_counter()
        self._next = 0.0
        self._steps = 0

    def step(self, **about: Any) -> None:
        """``about``: what is to be told of this step in its line, such as the images of its batch."""
        self._steps += 1
        now = time.perf_counter() - self._begin
        line: dict[str, Any] = {"step": self._steps, "seconds": round(now, 3), **about}
        if self._device is not None:
            floor, peak = self._device()
            self._keep(self.history, Reading(self._steps, now, floor, peak))
            line |= {"device": floor, "device_peak": peak}
        if now >= self._next:
            host = host_bytes()
            took = time.perf_counter() - self._begin - now
            self._next = now + took / COST
            self._keep(self.host, Reading(self._steps, now, host, host))
            line |= {"host": host, "shm": shm_bytes()}
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def verdict(self) -> Verdict:
        """The device's, unless only the host's says something is wrong."""
        found = [judge(self.history, self.limit)] if self.history else []
        found.append(judge(self.host, self.host_limit))
        wrong = [each for each in found if each.kind in ("leak", "spike")]
        return (wrong or found)[0]

    def close(self) -> str:
        """The summary: one line, also the last of the file."""
        found = self.verdict()
        text = f"{self._steps} steps: {found.kind}: {found.why}"
        if self._file is not None:
            self._file.write(json.dumps({"summary": text, "kind": found.kind}) + "\n")
            self._file.close()
            self._file = None
        return text

    @staticmethod
    def _keep(history: list[Reading], reading: Reading) -> None:
        history.append(reading)
        if len(history) > MOST:
            del history[1::2]


def _torch_meter() -> Meter | None:
    """PyTorch's counters, where it is loaded and has a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None

    def read() -> tuple[int, int]:
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated(), peak

    return read
