"""Ctrl-C while a step is traced.

Python may run a signal's handler in the middle of a callback from PyTorch's C++ that must not fail (asking a fake
tensor for its device, a storage's death): an exception there aborts the process. So the first Ctrl-C is kept until the
tracer sees the next operation; a second one is not.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupt:
    def __init__(self) -> None:
        self.asked = False

    def _note(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def check(self) -> None:
        """Called where an exception can do no harm."""
        if self.asked:
            self.asked = False
            raise KeyboardInterrupt

    @contextmanager
    def signal_held_back(self) -> Iterator[None]:
        """Only Python's own handling of Ctrl-C is replaced, and only where handlers can be set."""
        mine = threading.current_thread() is threading.main_thread()
        if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.check()
