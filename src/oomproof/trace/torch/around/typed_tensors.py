"""``torch.cuda.FloatTensor`` and its kin, by which code of PyTorch's first years makes and moves tensors on a GPU.

    FloatTensor = torch.cuda.FloatTensor if boxes.is_cuda else torch.FloatTensor     # in every YOLOv3
    mask = FloatTensor(batch, anchors, grid, grid).fill_(0)

They are C++ types that ask for a driver when they are called (torch 2.14); stand-ins go through the dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

_DTYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "CharTensor": torch.int8,
    "ShortTensor": torch.int16, "IntTensor": torch.int32, "LongTensor": torch.int64, "BoolTensor": torch.bool,
}  # fmt: skip
_ON_GPU, _ON_HOST = "torch.cuda.", "torch."


@contextmanager
def typed_tensors_in_place() -> Iterator[None]:
    plain_type, plain_default = torch.Tensor.type, torch.set_default_tensor_type

    def change_type(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        wanted = _read_type(dtype)
        if wanted is None:
            return plain_type(self) if dtype is None else plain_type(self, dtype, *args, **kwargs)
        kind, on_gpu = wanted
        return (self.cuda() if on_gpu else self.cpu()).to(kind)

    def type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (self.cuda() if other.is_cuda else self.cpu()).to(other.dtype)

    plain_types = {name: getattr(torch.cuda, name, None) for name in _DTYPES}

    def set_default(kind: Any, /) -> None:
        wanted = _read_type(kind)
        on_gpu = wanted is not None and wanted[1]
        name = kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__
        plain_default(plain_types[name] if on_gpu else kind)

    stand_ins = {name: _OnGpu(name, (), {"dtype": dtype}) for name, dtype in _DTYPES.items()}
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(patch.object(torch.cuda, name, stand_in, create=True))
        stack.enter_context(patch.object(torch.Tensor, "type", change_type))
        stack.enter_context(patch.object(torch.Tensor, "type_as", type_as))
        stack.enter_context(patch.object(torch, "set_default_tensor_type", set_default))
        stack.enter_context(patch.object(torch, "get_device", lambda tensor: tensor.get_device()))
        yield


def make_on_gpu(dtype: torch.dtype, *given: Any) -> torch.Tensor:
    """What a tensor type makes of what it is given: sides, a size, a tensor or data."""
    data = given[0] if len(given) == 1 else None
    if isinstance(data, torch.Tensor):
        return data.cuda().to(dtype)
    if data is None or isinstance(data, int | torch.Size):
        return torch.empty(data if isinstance(data, torch.Size) else given or (0,), dtype=dtype, device="cuda")
    return torch.tensor(data, dtype=dtype, device="cuda")


def _read_type(wanted: Any) -> tuple[torch.dtype, bool] | None:
    """(dtype, whether on a GPU) of a tensor type or its name; None for a dtype, which says nothing of a place.

    >>> _read_type("torch.cuda.LongTensor"), _read_type(torch.HalfTensor), _read_type(torch.float32)
    ((torch.int64, True), (torch.float16, False), None)
    """
    if isinstance(wanted, _OnGpu):
        return wanted.dtype, True
    if isinstance(wanted, torch.dtype) or wanted is None:
        return None
    named = wanted if isinstance(wanted, str) else f"{getattr(wanted, '__module__', '')}.{wanted.__name__}"
    for prefix in (_ON_GPU, _ON_HOST):
        dtype = _DTYPES.get(named.removeprefix(prefix)) if named.startswith(prefix) else None
        if dtype is not None:
            return dtype, prefix == _ON_GPU
    return None


class _OnGpu(type):
    """One of ``torch.cuda``'s tensor types."""

    dtype: torch.dtype
    is_cuda, is_sparse, layout = True, False, torch.strided

    def __instancecheck__(cls, each: Any) -> bool:
        return isinstance(each, torch.Tensor) and bool(each.is_cuda) and each.dtype == cls.dtype

    def __call__(cls, *given: Any, **named: Any) -> torch.Tensor:
        return make_on_gpu(cls.dtype, *given)
