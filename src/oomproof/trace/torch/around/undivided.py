"""``nn.DataParallel`` while a step is traced: the one GPU that is traced gets the whole batch.

It would ask the driver for its GPUs, and cut batches beneath the dispatcher. On one GPU it only calls its module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch import nn

NOTE = "nn.DataParallel only calls its module here: forecast is one GPU with the whole batch, as if there were no other"


@contextmanager
def without_dividing() -> Iterator[list[str]]:
    """Yields a list that holds NOTE once a batch would have been cut, or was given to one GPU only."""
    noted: list[str] = []

    def wrap(self: Any, module: nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = [0], 0

    def call(self: Any, *inputs: Any, **named: Any) -> Any:
        noted[:] = [NOTE]
        return self.module(*inputs, **named)

    with patch.object(nn.DataParallel, "__init__", wrap), patch.object(nn.DataParallel, "forward", call):
        yield noted
