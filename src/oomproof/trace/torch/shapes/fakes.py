"""Makes fake tensors, thousands in a trace, without the constructor's checks."""

from __future__ import annotations

from typing import Any

import torch

from oomproof.frameworks.torch import (
    FakeTensor,
    FakeTensorMode,
    KeptKeys,
    WithoutTorchDispatch,
    allows_data_ptr,
    ask_meta_kernels,
    make_subclass,
    refuse_data_ptr,
    warn_of_data_ptr,
)
from oomproof.trace.torch.shapes.forms import Form, form_of

CPU = torch.device("cpu")


class Fakes:
    """Fake CPU tensors of one mode. The first is made by PyTorch; the others get the same attributes. (The constructor
    takes 28 microseconds in torch 2.14, of which its question about devices and its twenty attributes are 22.)"""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._attributes: dict[str, Any] = {}
        self._guard = warn_of_data_ptr if allows_data_ptr(mode) else refuse_data_ptr

    def of(self, meta: torch.Tensor) -> FakeTensor:
        """A fake tensor that looks at a meta tensor's storage."""
        if not self._attributes:
            first = FakeTensor(self._mode, meta, CPU)
            self._attributes = dict(vars(first))
            return first
        fake: FakeTensor = make_subclass(
            FakeTensor, meta, meta.requires_grad, dispatch_device=True, device_for_backend_keys=CPU
        )
        self._guard(fake)
        vars(fake).update(self._attributes)
        return fake

    def make_tensors(self, forms: Any) -> Any:
        """New tensors, each with memory of its own: of a Form, or of lists and tuples of them."""
        with WithoutTorchDispatch():
            return self._make_tensors(forms)

    def _make_tensors(self, forms: Any) -> Any:
        if type(forms) is Form:
            return self.of(torch.empty_strided(forms.shape, forms.strides, dtype=forms.dtype, device="meta"))
        return type(forms)(map(self._make_tensors, forms)) if isinstance(forms, (list, tuple)) else forms

    def view(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operation that only looks at its argument otherwise gives, by PyTorch's own kernel for it."""
        # PyTorch's in_kernel_invocation_manager, without what a generator costs
        with WithoutTorchDispatch(), KeptKeys():
            self._mode.in_kernel_invocation = True
            ask_meta_kernels(True)
            try:
                seen = func(*args, **kwargs)
                return self.of(seen) if isinstance(seen, torch.Tensor) else type(seen)(map(self.of, seen))
            finally:
                self._mode.in_kernel_invocation = False

    def can_be_like(self, real: torch.Tensor) -> bool:
        return (
            real.device == CPU and real.layout is torch.strided and not real.requires_grad and fills_its_storage(real)
        )

    def like(self, real: torch.Tensor) -> Any:
        return self.make_tensors(form_of(real))


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether there is nothing in its memory that it does not show."""
    if tensor.storage_offset():
        return False
    spans = (stride * (side - 1) for side, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (1 + sum(spans)) * tensor.element_size() if tensor.numel() else 0
    return bool(tensor.untyped_storage().nbytes() == needed)
