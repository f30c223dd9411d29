"""Memory at every step of a training, kept as lines of JSON, with a verdict at any time.

monitor = Monitor("memory.jsonl", limit=8 << 30)
for batch in loader:
    ...
    monitor.step()
print(monitor.close())
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oomproof.memory.forecast import Forecast
from oomproof.run.monitor.first_steps import FIRST, hold_against
from oomproof.run.monitor.from_outside import WARM_UP, judge_from_inside
from oomproof.run.monitor.meters import own_and_children_bytes, shm_bytes
from oomproof.run.monitor.scalars import open_scalars
from oomproof.run.monitor.verdict import StepReading, Verdict, judge, keep_reading

COST = 0.004
"""part of the time that reading host memory may take; the readings of PyTorch's own counters are free beside it"""
Meter = Callable[[], tuple[int, int]]
"""(now, most since the last time) in bytes"""


class Monitor:
    """``step()`` after every step; ``history`` has the device's readings, ``host`` the host's, which cost time and are
    taken as often as COST allows, and ``workers`` the part of them that child processes hold.

    ``path``: lines of JSON. ``tensorboard``: a folder, or a SummaryWriter. ``forecast``: what the first steps are held
    against; ``gap`` then names the difference, if there is one. ``warm_up``: seconds that data workers may grow.
    """

    def __init__(
        self, path: str | Path | None = None, limit: int | None = None, host_limit: int | None = None,
        device: Meter | None = None, *, tensorboard: Any = None, forecast: Forecast | None = None,
        warm_up: float = WARM_UP,
    ) -> None:  # fmt: skip
        self.warm_up = warm_up
        self.limit, self.host_limit, self.forecast = limit, host_limit, forecast
        self.history: list[StepReading] = []
        self.host: list[StepReading] = []
        self.workers: list[StepReading] = []
        self.gap = ""
        """how the first steps differ from the forecast"""
        self._device = device if device is not None else _torch_meter()
        self._file = Path(path).open("a") if path is not None else None  # noqa: SIM115
        self._scalars = open_scalars(tensorboard) if tensorboard is not None else None
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
            keep_reading(self.history, StepReading(self._steps, now, floor, peak))
            line |= {"device": floor, "device_peak": peak}
        if now >= self._next:
            own, children = own_and_children_bytes()
            took = time.perf_counter() - self._begin - now
            self._next = now + took / COST
            host = own + children
            keep_reading(self.host, StepReading(self._steps, now, host, host))
            keep_reading(self.workers, StepReading(self._steps, now, children, children))
            line |= {"host": host, "workers": children, "shm": shm_bytes()}
        if self._steps == FIRST and self.forecast is not None and self.history:
            self.gap = hold_against(self.forecast, max(each.peak for each in self.history))
            line |= {"gap": self.gap} if self.gap else {}
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        if self._scalars is not None:
            self._scalars.add(line)

    def verdict(self) -> Verdict:
        """The device's, unless only the host's says something is wrong; the workers' where they are what grows."""
        found = [judge(self.history, self.limit)] if self.history else []
        found.append(judge_from_inside(self.host, self.workers, self.host_limit, self.warm_up))
        wrong = [each for each in found if each.kind in ("leak", "spike")]
        return (wrong or found)[0]

    def close(self) -> str:
        """The summary: one line, also the last of the file."""
        found = self.verdict()
        text = f"{self._steps} steps: {found.kind}: {found.why}" + (f"; {self.gap}" if self.gap else "")
        if self._file is not None:
            self._file.write(json.dumps({"summary": text, "kind": found.kind}) + "\n")
            self._file.close()
            self._file = None
        if self._scalars is not None:
            self._scalars.close()
            self._scalars = None
        return text


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
