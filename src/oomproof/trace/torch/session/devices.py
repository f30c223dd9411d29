"""Which operations of a script are the GPU's, and what crosses from the CPU to it and back.

Real tensors are the script's CPU tensors, fake ones those of its GPU. To C++ a fake tensor says that it is on
``cpu:0``: its kernels, autograd and autocast are the CPU's, which need no GPU, and yet what C++ makes beside it (zeros
for a one-hot, a gradient) is told from what the script makes on plain ``cpu``.
"""

from __future__ import annotations

from typing import Any

import torch

from oomproof.frameworks.torch import FakeTensor, TorchDispatchMode, copy_to
from oomproof.trace.torch.contents import LARGEST_VALUE
from oomproof.trace.torch.shapes.operations import find_written, look_up
from oomproof.trace.torch.tracer import Tracer
from oomproof.trace.torch.values import CPU, map_leaves, plain_arithmetic

GPU_TO_CPP = torch.device("cpu", 0)

META = torch.device("meta")
_DEVICE = torch.ops.prim.device.default


class Devices(TorchDispatchMode):  # type: ignore[misc]
    """Sends operations on fake tensors, and those that make tensors on a GPU, to the tracer; runs all others."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        on_gpu = FakeTensor in types
        if func is _DEVICE and on_gpu:
            return META if args[0].fake_mode.in_kernel_invocation else GPU_TO_CPP
        kwargs = kwargs or {}
        device = kwargs.get("device")
        to_gpu = on_gpu if device is None else is_gpu(device)
        if not on_gpu and not to_gpu:
            return func(*args, **kwargs)
        if to_gpu != on_gpu:
            return self._cross(func, types, args, kwargs, to_gpu)
        if device is not None:
            kwargs = {**kwargs, "device": CPU}
        if self._writes_real(func, args, kwargs):
            return self._write_real(func, args, kwargs)
        return self.tracer.__torch_dispatch__(func, types, args, kwargs)

    def _cross(self, func: Any, types: Any, args: Any, kwargs: Any, to_gpu: bool) -> Any:
        """An operation whose result is on the other side than its arguments; mostly a copy."""
        if func is copy_to:
            return self.to_gpu(args[0], kwargs) if to_gpu else self.to_cpu(args[0], kwargs)
        if to_gpu:
            return self.tracer.__torch_dispatch__(func, types, args, {**kwargs, "device": CPU})
        real = map_leaves(lambda leaf: self.content(leaf) if isinstance(leaf, torch.Tensor) else leaf, args)
        return func(*real, **kwargs)

    def to_gpu(self, real: torch.Tensor, kwargs: Any) -> torch.Tensor:
        weight = isinstance(real, torch.nn.Parameter)
        options = {
            name: value for name, value in kwargs.items() if name not in ("device", "non_blocking", "pin_memory")
        }
        with plain_arithmetic():
            if weight or real.numel() * real.element_size() > LARGEST_VALUE:
                dtype = options.pop("dtype", None) or real.dtype
                copy = torch.empty_like(real, dtype=dtype, memory_format=options.get("memory_format"))
            else:  # the script may write to its own tensor later
                copy = copy_to(real, **options)
        fake = self.tracer.lay_out(copy, "to", weight=weight)
        if not weight:
            self.tracer.ledger.mark(fake, "input")
        return fake

    def to_cpu(self, fake: torch.Tensor, kwargs: Any) -> torch.Tensor:
        real = self.content(fake)
        with plain_arithmetic():
            return real.to(kwargs["dtype"]) if kwargs.get("dtype") else real

    def content(self, tensor: torch.Tensor) -> torch.Tensor:
        """A real tensor of the script's own, with a fake one's content."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        real = self.tracer.compute(tensor)
        with plain_arithmetic():
            return real.clone()

    def _writes_real(self, func: Any, args: Any, kwargs: Any) -> bool:
        written = find_written(look_up(func), args, kwargs)
        return any(not isinstance(each, FakeTensor) for each in written)

    def _write_real(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``cpu_tensor.copy_(gpu_tensor)``: the script wants to see the numbers."""

        def real(leaf: Any) -> Any:
            return self.content(leaf) if isinstance(leaf, FakeTensor) else leaf

        return func(*map_leaves(real, args), **map_leaves(real, kwargs))


def is_gpu(device: torch.device) -> bool:
    return bool(device.type == "cuda" or device == GPU_TO_CPP)
