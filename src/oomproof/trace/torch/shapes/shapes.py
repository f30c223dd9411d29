"""Remembers what operations make of shapes, and what else follows from shapes alone.

A step repeats itself: image by image, block by block; and so do the traces of one job. FakeTensorMode has a memory for
that too, but one that must be right for symbolic sizes and for aliases; finding a result in it takes many times as long
as here. Only operations whose results are new tensors, or the very tensor that they write to, are remembered, and only
plain fake CPU tensors are looked at.
"""

from __future__ import annotations

from typing import Any

import torch

from oomproof.frameworks.torch import FakeTensor, storage_key
from oomproof.trace.torch.activity import work_of
from oomproof.trace.torch.gpu.scratch import call_spec
from oomproof.trace.torch.shapes.fakes import fills_its_storage
from oomproof.trace.torch.shapes.forms import SAME, form_of
from oomproof.trace.torch.shapes.operations import OpFacts, mixes
from oomproof.trace.torch.shapes.rules import apply_rule
from oomproof.trace.torch.values import leaves, tensors_in

MOST = 50_000
"""operations that are remembered; then everything is forgotten"""
_MEMORY: dict[Any, SeenOperation] = {}
"""shared by all traces of the process: what an operation makes of shapes does not depend on the job"""
_PLAIN = frozenset({bool, int, float, str, torch.dtype, torch.device, type(None)})
_GENERATOR = torch.Generator
_LAYOUT = torch.Tensor.layout.__get__
"""the tensor's own, around a property of fake tensors that takes three times as long"""


class SeenOperation:
    """An operation on arguments of certain shapes."""

    __slots__ = ("forms", "mixes", "spec", "work")

    def __init__(self, forms: Any) -> None:
        self.forms = forms
        """of its results"""
        self.work: tuple[int, int, int] | None = None
        """flops, bytes and form, once they were worked out"""
        self.mixes = False
        """what comes out for one image depends on the others"""
        self.spec: dict[str, Any] | None = None
        """what prices its scratch memory"""

    def work_out(self, facts: OpFacts, args: Any, kwargs: Any, outs: Any) -> tuple[int, int, int]:
        self.work = work_of(facts.name, args, tensors_in(args, kwargs), outs)
        self.mixes = mixes(facts, args, outs)
        self.spec = call_spec(facts.name, args, outs) if facts.scratch else None
        return self.work


def key_of(facts: OpFacts, args: Any, kwargs: Any) -> Any:
    """What the results' shapes depend on; None if the operation is not for this memory."""
    try:
        named = [(name, _describe_argument(argument)) for name, argument in kwargs.items()] if kwargs else ()
        return (facts, torch.get_default_dtype(), *map(_describe_argument, args), *named)
    except _NotPlain:
        return None


def recall_shapes(key: Any, func: Any, args: Any, kwargs: Any) -> SeenOperation | None:
    """An operation that was seen before, or that a rule covers."""
    seen = _MEMORY.get(key)
    if seen is None:
        forms = apply_rule(func, args, kwargs)
        if forms is not None:
            seen = _keep(key, forms)
    return seen


def learn_shapes(key: Any, args: Any, kwargs: Any, out: Any) -> SeenOperation:
    """Keeps the results' shapes; not where some share memory with each other or, as _unsafe_view's do against its own
    word, with an argument."""
    if key is not None:
        if args and out is args[0]:
            return _keep(key, SAME)
        given, made = _storages((args, kwargs)), _storages(out)
        apart = len(set(made)) == len(made) and not set(made) & set(given)
        if apart and all(_fills_its_storage(leaf) for leaf in leaves(out) if isinstance(leaf, torch.Tensor)):
            return _keep(key, _plain(out))
    return SeenOperation(None)


def _keep(key: Any, forms: Any) -> SeenOperation:
    if len(_MEMORY) >= MOST:
        _MEMORY.clear()
    seen = _MEMORY[key] = SeenOperation(forms)
    return seen


class _NotPlain(Exception):
    """An argument that the memory does not know how to tell apart."""


def _storages(tree: Any) -> list[int]:
    return [storage_key(leaf.untyped_storage()) for leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def _plain(out: Any) -> Any:
    """Results without their tensors; named tuples become tuples."""
    if isinstance(out, (list, tuple)):
        return (list if isinstance(out, list) else tuple)(map(_plain, out))
    return form_of(out) if isinstance(out, torch.Tensor) else out


def _describe_argument(argument: Any) -> Any:
    kind = type(argument)
    if kind is FakeTensor:
        if argument.constant is not None or _LAYOUT(argument) is not torch.strided or argument.is_mkldnn:
            raise _NotPlain
        return argument.shape, argument.stride(), argument.dtype
    if kind in _PLAIN:
        return kind, argument
    if isinstance(argument, (list, tuple)):
        return tuple(map(_describe_argument, argument))
    if isinstance(argument, (torch.memory_format, torch.layout)):
        return argument
    if kind is _GENERATOR:  # says which numbers are drawn, not how many
        return kind
    raise _NotPlain


def _fills_its_storage(tensor: torch.Tensor) -> bool:
    return type(tensor) is FakeTensor and tensor.constant is None and fills_its_storage(tensor)
