"""Remembers what operations make of shapes.

A step repeats itself: image by image, block by block; and so do the traces of one job. FakeTensorMode has a memory for
that too, but one that must be right for symbolic sizes and for aliases; finding a result in it takes many times as long
as here. Only operations whose results are new tensors, or the very tensor that they write to, are remembered, and only
plain fake CPU tensors are looked at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from oomproof.trace.torch.fakes import Fakes, fills_its_storage
from oomproof.trace.torch.rules import SAME, Form, form_of, told
from oomproof.trace.torch.values import leaves, mapped

MOST = 50_000
"""operations that are remembered; then everything is forgotten"""
_SEEN: dict[Any, Any] = {}
"""shared by all traces of the process: what an operation makes of shapes does not depend on the job"""
_PLAIN = frozenset({bool, int, float, str, torch.dtype, torch.device, type(None)})
_LAYOUT = torch.Tensor.layout.__get__
"""the tensor's own, around a property of fake tensors that takes three times as long"""


class Shapes:
    def __init__(self, fakes: Fakes) -> None:
        self._fakes = fakes

    def key(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What the results' shapes depend on; None if the operation is not for this memory."""
        try:
            return (func, torch.get_default_dtype(), *map(_described, args), *map(_described, kwargs.items()))
        except _NotPlain:
            return None

    def recalled(self, mode: Any, key: Any, args: Any, kwargs: Any) -> Any:
        """New results of an operation that was seen before, or that a rule covers; else NotImplemented."""
        forms = _SEEN.get(key)
        if forms is None:
            forms = told(key[0], args, kwargs)
            if forms is None:
                return NotImplemented
            self._keep(key, forms)
        if forms is SAME:
            return args[0]
        with in_kernel_invocation_manager(mode):
            if type(forms) is Form:
                return self._made(forms)
            return mapped(lambda form: self._made(form) if isinstance(form, Form) else form, forms)

    def learn(self, key: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Keeps the results' shapes; not where some share memory with each other or, as _unsafe_view's do against its
        own word, with an argument."""
        if args and out is args[0]:
            self._keep(key, SAME)
            return
        given, made = _storages((args, kwargs)), _storages(out)
        apart = len(set(made)) == len(made) and not set(made) & set(given)
        if apart and all(_fills_its_storage(leaf) for leaf in leaves(out) if isinstance(leaf, torch.Tensor)):
            self._keep(key, _plain(out))

    def _keep(self, key: Any, forms: Any) -> None:
        if len(_SEEN) >= MOST:
            _SEEN.clear()
        _SEEN[key] = forms

    def _made(self, form: Form) -> FakeTensor:
        return self._fakes.empty(form.shape, form.strides, form.dtype)


class _NotPlain(Exception):
    """An argument that the memory does not know how to tell apart."""


def _storages(tree: Any) -> list[int]:
    return [leaf.untyped_storage()._cdata for leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def _plain(out: Any) -> Any:
    """Results without their tensors; named tuples become tuples."""
    if isinstance(out, (list, tuple)):
        return (list if isinstance(out, list) else tuple)(map(_plain, out))
    return form_of(out) if isinstance(out, torch.Tensor) else out


def _described(argument: Any) -> Any:
    kind = type(argument)
    if kind is FakeTensor:
        if argument.constant is not None or _LAYOUT(argument) is not torch.strided or argument.is_mkldnn:
            raise _NotPlain
        return argument.shape, argument.stride(), argument.dtype
    if kind in _PLAIN:
        return kind, argument
    if isinstance(argument, (list, tuple)):
        return tuple(map(_described, argument))
    if isinstance(argument, (torch.memory_format, torch.layout)):
        return argument
    raise _NotPlain


def _fills_its_storage(tensor: torch.Tensor) -> bool:
    return type(tensor) is FakeTensor and tensor.constant is None and fills_its_storage(tensor)
