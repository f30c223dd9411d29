"""Threads that a job starts: they trace too, one operation at a time, and their failures are the job's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from oomproof.trace.torch.tracer import Tracer


@contextmanager
def tracing_threads(tracer: Tracer) -> Iterator[None]:
    """PyTorch's modes belong to the thread that entered them; what a new thread did would go unseen."""
    failures: list[BaseException] = []
    start = threading.Thread.start

    def start_tracing(self: threading.Thread) -> None:
        run = self.run

        def run_traced() -> None:
            with tracer:
                run()

        self.run = run_traced  # type: ignore[method-assign]  # of this one thread
        start(self)

    def keep(raised: Any) -> None:
        if raised.exc_value is not None:
            failures.append(raised.exc_value)

    with patch.object(threading.Thread, "start", start_tracing), patch.object(threading, "excepthook", keep):
        yield
    if failures:
        raise failures[0]
