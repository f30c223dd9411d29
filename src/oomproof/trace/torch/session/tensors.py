"""Fake tensors as a script sees them: on ``cuda:0``, moved by ``to``, ``cuda`` and ``cpu``, and modules with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from oomproof.frameworks.torch import FakeTensor, parse_to
from oomproof.frameworks.torch_moving import moving_by_swap
from oomproof.trace.torch.around.said_device import Asked, tensors_said_on_gpu
from oomproof.trace.torch.gpu.dialect import Dialect
from oomproof.trace.torch.session.devices import GPU_TO_CPP, Devices, is_gpu
from oomproof.trace.torch.tracer import Tracer
from oomproof.trace.torch.values import CPU, map_leaves


@contextmanager
def tensors_seen_on_gpu(devices: Devices, dialect: Dialect) -> Iterator[None]:
    """In the ``cpu`` dialect, which is held against real runs on the CPU, Python code is told of a CPU: it has loops
    over single tensors where it would take whole lists on a GPU."""
    with ExitStack() as stack:
        if dialect == "cuda":
            stack.enter_context(tensors_said_on_gpu(devices.tracer, Asked()))
        else:
            stack.enter_context(patch.object(FakeTensor, "device", _make_device_property(devices.tracer)))
        # It asks for parameters on cuda:0, and scatters tensors by C++ code.
        stack.enter_context(patch.object(torch.nn.DataParallel, "forward", call_on_gpu))
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
        "record_stream": lambda self, stream: None,
        "__reduce_ex__": _reduce(devices),
    }  # fmt: skip


def call_on_gpu(wrapper: Any, *given: Any, **named: Any) -> Any:
    """What wrappers for several GPUs do with one: whatever they are given goes there, then to their module."""
    return wrapper.module(*map_leaves(_to_gpu, given), **map_leaves(_to_gpu, named))


def _to_gpu(value: Any) -> Any:
    return value.cuda() if isinstance(value, torch.Tensor) else value


def _make_device_property(tracer: Tracer) -> property:
    said = FakeTensor.device.fget

    def device(self: Any) -> torch.device:
        found: torch.device = said(self)
        return GPU_TO_CPP if found == CPU and not tracer.inside else found

    return property(device)


def _reduce(devices: Devices) -> Callable[..., Any]:
    def reduce(self: Any, protocol: Any) -> Any:
        """Pickled (sent to a process, cached in a file): its content goes."""
        return devices.content(self.detach()).__reduce_ex__(protocol)

    return reduce
