"""A DataLoader while a job is traced: it reads its batch in this process.

Workers are forked with the tracer in them. What they read would be fake there, and cannot be sent; their memory is
priced elsewhere (memory/host_memory.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch.utils.data import DataLoader

_ALONE = {"num_workers": 0, "timeout": 0, "prefetch_factor": None, "pin_memory": False}


@contextmanager
def loaders_without_workers() -> Iterator[None]:
    plain = DataLoader.__iter__

    def iterate(self: Any) -> Any:
        if not self.num_workers:
            return plain(self)
        with ExitStack() as stack:  # an iterator reads these once, when it is made
            for name, value in _ALONE.items():
                stack.enter_context(patch.object(self, name, value))
            return plain(self)

    with patch.object(DataLoader, "__iter__", iterate):
        yield
