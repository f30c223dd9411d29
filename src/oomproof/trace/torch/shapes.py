"""Remembers, for one trace, what operations make of shapes.

A step repeats itself: image by image, block by block. FakeTensorMode has a memory for that too, but one that must be
right for symbolic sizes and for aliases; finding a result in it takes four times as long as here. Only operations
whose results are new tensors are remembered, and only plain fake CPU tensors are looked at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from oomproof.trace.torch.values import CPU, leaves, mapped


class Shapes:
    def __init__(self) -> None:
        self._seen: dict[Any, Any] = {}

    def key(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What the results' shapes depend on; None if the operation is not for this memory."""
        try:
            return (func, torch.get_default_dtype(), *map(_described, args), *map(_described, kwargs.items()))
        except _NotPlain:
            return None

    def recalled(self, mode: FakeTensorMode, key: Any) -> Any:
        """New results of an operation that was seen before, or NotImplemented."""
        forms = self._seen.get(key)
        if forms is None:
            return NotImplemented
        with in_kernel_invocation_manager(mode):
            return mapped(lambda form: form.made(mode) if isinstance(form, _Form) else form, forms)

    def learn(self, key: Any, args: Any, out: Any) -> None:
        """Keeps the results' shapes; not where some share memory with each other or, as _unsafe_view's do against its
        own word, with an argument."""
        given, made = _storages(args), _storages(out)
        apart = len(set(made)) == len(made) and not set(made) & set(given)
        if apart and all(_fills_its_storage(leaf) for leaf in leaves(out) if isinstance(leaf, torch.Tensor)):
            self._seen[key] = _plain(out)


class _NotPlain(Exception):
    """An argument that the memory does not know how to tell apart."""


class _Form:
    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.strides, self.dtype = tensor.shape, tensor.stride(), tensor.dtype

    def made(self, mode: FakeTensorMode) -> FakeTensor:
        return FakeTensor(mode, torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="meta"), CPU)


def _storages(tree: Any) -> list[int]:
    return [leaf.untyped_storage()._cdata for leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def _plain(out: Any) -> Any:
    """Results without their tensors; named tuples become tuples."""
    if isinstance(out, (list, tuple)):
        return (list if isinstance(out, list) else tuple)(map(_plain, out))
    return _Form(out) if isinstance(out, torch.Tensor) else out


def _described(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        if type(argument) is not FakeTensor or argument.constant is not None or argument.layout is not torch.strided:
            raise _NotPlain
        return argument.shape, argument.stride(), argument.dtype
    if isinstance(argument, (list, tuple)):
        return tuple(map(_described, argument))
    if argument is None or isinstance(argument, (bool, int, float, str, torch.dtype, torch.device)):
        return type(argument), argument
    if isinstance(argument, (torch.memory_format, torch.layout)):
        return argument
    raise _NotPlain


def _fills_its_storage(tensor: torch.Tensor) -> bool:
    if type(tensor) is not FakeTensor or tensor.constant is not None or tensor.storage_offset():
        return False
    spans = (stride * (side - 1) for side, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (1 + sum(spans)) * tensor.element_size() if tensor.numel() else 0
    return bool(tensor.untyped_storage().nbytes() == needed)
