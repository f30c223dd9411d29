"""Makes fake tensors, thousands in a trace, without the constructor's checks."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

CPU = torch.device("cpu")


class Fakes:
    """Fake CPU tensors of one mode. The first is made by PyTorch; the others get the same attributes. (The constructor
    takes 28 microseconds in torch 2.14, of which its question about devices and its twenty attributes are 22.)"""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._attributes: dict[str, Any] = {}
        warned, refused = torch._C._set_warn_deprecated_on_mutable_data_ptr, torch._C._set_throw_on_mutable_data_ptr
        self._guard = warned if mode._allow_unsafe_data_ptr_access else refused

    def of(self, meta: torch.Tensor) -> FakeTensor:
        """A fake tensor that looks at a meta tensor's storage."""
        if not self._attributes:
            first = FakeTensor(self._mode, meta, CPU)
            self._attributes = dict(vars(first))
            return first
        fake: FakeTensor = torch.Tensor._make_subclass(
            FakeTensor, meta, meta.requires_grad, dispatch_device=True, device_for_backend_keys=CPU
        )
        self._guard(fake)
        vars(fake).update(self._attributes)
        return fake

    def empty(self, shape: Any, strides: Any, dtype: torch.dtype) -> FakeTensor:
        """One with memory of its own. To be called where operations are those on meta tensors."""
        return self.of(torch.empty_strided(shape, strides, dtype=dtype, device="meta"))

    def view(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operation that only looks at its argument otherwise gives, by PyTorch's own kernel for it."""
        with in_kernel_invocation_manager(self._mode):
            seen = func(*args, **kwargs)
            return self.of(seen) if isinstance(seen, torch.Tensor) else type(seen)(map(self.of, seen))

    def can_be_like(self, real: torch.Tensor) -> bool:
        return (
            real.device == CPU and real.layout is torch.strided and not real.requires_grad and fills_its_storage(real)
        )

    def like(self, real: torch.Tensor) -> FakeTensor:
        with in_kernel_invocation_manager(self._mode):
            return self.empty(real.shape, real.stride(), real.dtype)


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether there is nothing in its memory that it does not show."""
    if tensor.storage_offset():
        return False
    spans = (stride * (side - 1) for side, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (1 + sum(spans)) * tensor.element_size() if tensor.numel() else 0
    return bool(tensor.untyped_storage().nbytes() == needed)
