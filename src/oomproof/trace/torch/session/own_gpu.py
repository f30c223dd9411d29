"""Whether each process of a launcher takes a GPU of its own. Unless it is told which, PyTorch takes the first, and so
all processes of a machine would share it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

_PLACES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
"""variables by which launchers tell a process its place on the machine"""


class OwnGpu:
    """What a script did about it so far."""

    def __init__(self) -> None:
        self.told = False
        """a GPU was named for this process (torch.cuda.set_device)"""
        self.asked = False
        """the script asked which process it is; what it makes of the answer is not seen"""
        self._visible = os.environ.get("CUDA_VISIBLE_DEVICES")

    def is_taken(self) -> bool:
        return self.told or self.asked or os.environ.get("CUDA_VISIBLE_DEVICES") != self._visible

    @contextmanager
    def choices_watched(self) -> Iterator[None]:
        """Inside of ``card_in_place``, whose answers it passes on."""
        read = type(os.environ).__getitem__

        def read_variable(environ: Any, name: str) -> str:
            self.asked |= name in _PLACES
            return read(environ, name)

        with ExitStack() as stack:
            stack.enter_context(patch.object(type(os.environ), "__getitem__", read_variable))
            stack.enter_context(patch.object(torch.cuda, "set_device", self._noting(torch.cuda.set_device)))
            for name in ("set_device_index", "set_device_idx"):
                if hasattr(torch, "accelerator") and hasattr(torch.accelerator, name):
                    answer = getattr(torch.accelerator, name)
                    stack.enter_context(patch.object(torch.accelerator, name, self._noting(answer)))
            yield

    def _noting(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        def choose(*given: Any, **named: Any) -> Any:
            # a DataLoader's thread that pins memory is told the present GPU
            self.told |= threading.current_thread() is threading.main_thread()
            return answer(*given, **named)

        return choose
