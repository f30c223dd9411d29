"""Fake tensors as a script sees them: on ``cuda:0``, moved by ``to``, ``cuda`` and ``cpu``, and modules with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from oomproof.frameworks.torch import FakeTensor, moving_by_swap, parse_to
from oomproof.trace.torch.around.said_device import Asked, said_to_be_on_gpu
from oomproof.trace.torch.session.devices import Devices, is_gpu


@contextmanager
def seen_on_gpu(devices: Devices) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(said_to_be_on_gpu(devices.tracer, Asked()))
        for name, answer in _answers(devices).items():
            stack.enter_context(patch.object(FakeTensor, name, answer, create=True))
        stack.enter_context(moving_by_swap())
        yield


def _answers(devices: Devices) -> dict[str, Any]:
    def to(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        copy = kwargs.pop("copy", False)
        device, dtype, _, memory_format = parse_to(*args, **kwargs)
        wanted = {"device": None if device is None or is_gpu(device) else device, "dtype": dtype}
        named = {name: value for name, value in wanted.items() if value is not None and value != self.dtype}
        if memory_format is not None:
            named["memory_format"] = memory_format
        if not named and not copy:
            return self  # it is there already
        return move(self, **{"dtype": self.dtype, **named}, copy=copy)

    move = torch.Tensor.to

    def cuda(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self

    def cpu(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return move(self, "cpu")

    return {
        "to": to,
        "cuda": cuda,
        "cpu": cpu,
        "is_pinned": lambda self, *_: False,
        "__reduce_ex__": _reduce(devices),
    }  # fmt: skip


def _reduce(devices: Devices) -> Callable[..., Any]:
    def reduce(self: Any, protocol: Any) -> Any:
        """Pickled (sent to a process, cached in a file): its content goes."""
        return devices.content(self.detach()).__reduce_ex__(protocol)

    return reduce
