"""Lazy values: what a fake tensor would contain, computed only when code asks.

A forecast needs shapes, not numbers, but detection code branches on numbers (matching, sampling, NMS). So each
fake storage has a Value which remembers how its content comes about. When a data-dependent operation asks, the
chain is run on the CPU back to the user's data, or to an output of the network, which is made up: the
convolutions and matrix products of the network itself are never computed.

Values belong to storages, not tensors, so that views and in-place writes come out right by themselves.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from oomproof.frameworks.torch import (
    BelowAutograd,
    WithoutKeys,
    WithoutTorchDispatch,
    autocast_keys,
    unset_fake_temporarily,
)

CPU = torch.device("cpu")
NETWORK_SCALE = 0.5
"""Standard deviation of made-up network outputs: logits near even odds, box deltas of half an anchor."""
LARGE = 4 << 20
"""Bytes from which on a value's content is not kept longer than it must be."""

_HALF = (torch.float16, torch.bfloat16)


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Plain CPU arithmetic: no fake tensors, no autograd, no autocast."""
    with (
        unset_fake_temporarily(),
        WithoutTorchDispatch(),
        BelowAutograd(),
        WithoutKeys(autocast_keys),
        torch.no_grad(),
    ):
        yield


class Value:
    """The content of one storage: known bytes, or an operation to run, or a network output to make up."""

    __slots__ = ("bytes", "dtype", "from_network", "operation", "result", "storage", "users", "weight")

    def __init__(
        self,
        nbytes: int,
        dtype: torch.dtype,
        *,
        storage: torch.UntypedStorage | None = None,
        operation: Operation | None = None,
        result: int = 0,
        weight: bool = False,
        from_network: bool = False,
    ) -> None:
        self.bytes, self.dtype = nbytes, dtype
        self.storage, self.operation, self.result = storage, operation, result
        self.users: list[weakref.ref[Operation]] = []
        """operations that wait for this value, noted only where it is large"""
        self.weight = weight
        """is a parameter, or a copy or cast of one"""
        self.from_network = from_network
        """depends on an output of the network"""

    def settle(self) -> None:
        """Runs what waits for this value alone and makes something smaller of it, so that its content can go."""
        with plain_arithmetic():
            for user in self.users:
                operation = user()
                if operation is not None and operation.size < self.bytes and not operation.missing():
                    operation.run()

    def read(self) -> torch.UntypedStorage:
        """The content, within ``plain_arithmetic``; runs what has to be run. Iterative, since chains can be thousands
        of operations long."""
        waiting = [self]
        while waiting:
            value = waiting[-1]
            if value.storage is not None:
                waiting.pop()
            elif value.operation is None:
                value.storage = make_up_content(value.bytes, value.dtype)
            else:
                missing = value.operation.missing()
                if missing:
                    waiting.extend(missing)
                else:
                    value.storage = value.operation.run()[value.result]
                    value.operation = None
        assert self.storage is not None
        return self.storage


class View:
    """A tensor argument of an Operation: how it looks at its Value's storage."""

    __slots__ = ("dtype", "offset", "size", "stride", "value")

    def __init__(self, value: Value, tensor: torch.Tensor) -> None:
        self.value, self.dtype = value, tensor.dtype
        self.size, self.stride, self.offset = tensor.shape, tensor.stride(), tensor.storage_offset()

    def tensor(self, storage: torch.UntypedStorage | None = None) -> torch.Tensor:
        storage = self.value.read() if storage is None else storage
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.size, self.stride)


class Layout:
    """How an operation's fresh output lies in its storage, so that the computed one can be laid out alike."""

    __slots__ = ("bytes", "dtype", "offset", "place", "size", "stride")

    def __init__(self, place: int, tensor: torch.Tensor) -> None:
        self.place, self.bytes, self.dtype = place, tensor.untyped_storage().nbytes(), tensor.dtype
        self.size, self.stride, self.offset = tensor.shape, tensor.stride(), tensor.storage_offset()

    def storage_of(self, computed: torch.Tensor) -> torch.UntypedStorage:
        storage = computed.untyped_storage()
        same = (
            computed.dtype == self.dtype
            and computed.stride() == self.stride
            and computed.storage_offset() == self.offset
            and storage.nbytes() == self.bytes
        )
        if not same:
            storage = torch.UntypedStorage(self.bytes)
            torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.size, self.stride).copy_(computed)
        return storage


class Operation:
    """``function(*args, **kwargs)``, run at most once; its results are storages: written ones, then fresh ones."""

    __slots__ = ("__weakref__", "args", "fresh", "function", "kwargs", "results", "size", "written")

    def __init__(
        self, function: Any, args: Any, kwargs: Any, *, seen: list[Value], written: list[Value], fresh: list[Layout]
    ) -> None:
        """``seen`` are the values that ``args`` and ``kwargs`` look at."""
        self.function, self.args, self.kwargs = function, args, kwargs
        self.written, self.fresh = written, fresh
        self.results: list[torch.UntypedStorage] | None = None
        self.size = sum(value.bytes for value in written) + sum(layout.bytes for layout in fresh)
        """bytes of all results"""
        for value in seen:
            if value.bytes >= LARGE:
                value.users.append(weakref.ref(self))

    def missing(self) -> list[Value]:
        """Values that must be read before this can run."""
        if self.results is not None:
            return []
        views = [leaf for leaf in leaves((self.args, self.kwargs)) if isinstance(leaf, View)]
        return [v for v in (*self.written, *(view.value for view in views)) if v.storage is None]

    def run(self) -> list[torch.UntypedStorage]:
        if self.results is None:
            self.results = self._compute()
            self.args, self.kwargs, self.written = (), {}, []
        return self.results

    def _compute(self) -> list[torch.UntypedStorage]:
        copies = {id(value): value.read().clone() for value in self.written}

        def concrete(leaf: Any) -> Any:
            if isinstance(leaf, View):
                return leaf.tensor(copies.get(id(leaf.value)))
            return CPU if isinstance(leaf, torch.device) else leaf

        args, kwargs = map_leaves(concrete, self.args), map_leaves(concrete, self.kwargs)
        outputs = [leaf for leaf in leaves(self._call(args, kwargs)) if isinstance(leaf, torch.Tensor)]
        return [
            *(copies[id(value)] for value in self.written),
            *(layout.storage_of(outputs[layout.place]) for layout in self.fresh),
        ]

    def _call(self, args: Any, kwargs: Any) -> Any:
        try:
            return self.function(*args, **kwargs)
        except (RuntimeError, NotImplementedError):
            # The CPU has no half-precision kernel for some operations a GPU has: compute in float, lay out as half.
            def to_float32(leaf: Any) -> Any:
                half = isinstance(leaf, torch.Tensor) and leaf.dtype in _HALF
                return leaf.float() if half else (torch.float32 if leaf in _HALF else leaf)

            try:
                return self.function(*map_leaves(to_float32, args), **map_leaves(to_float32, kwargs))
            except (RuntimeError, NotImplementedError):
                return self._make_up_outputs()

    def _make_up_outputs(self) -> list[torch.Tensor]:
        """No CPU kernel at all (fused GPU operations): treat the result as a network output."""
        outputs = [torch.empty(0)] * (1 + max((layout.place for layout in self.fresh), default=-1))
        for layout in self.fresh:
            storage = make_up_content(math.prod(layout.size) * layout.dtype.itemsize, layout.dtype)
            outputs[layout.place] = torch.empty(0, dtype=layout.dtype).set_(storage).view(layout.size)
        return outputs


def value_of_tensor(tensor: torch.Tensor) -> Value:
    """The Value of a real tensor."""
    storage = tensor.untyped_storage()
    return Value(storage.nbytes(), tensor.dtype, storage=storage)


def make_up_content(nbytes: int, dtype: torch.dtype) -> torch.UntypedStorage:
    """Content for a network output: noise for numbers, even odds for masks (a lone flag: False), zeros for indices."""
    count = nbytes // dtype.itemsize
    with plain_arithmetic():
        noise = torch.Generator().manual_seed(count)
        if dtype.is_complex:
            content = torch.zeros(count, dtype=dtype)
        elif dtype.is_floating_point:
            content = torch.randn(count, generator=noise).mul_(NETWORK_SCALE).to(dtype)
        elif dtype is torch.bool:
            content = (torch.rand(count, generator=noise) < 0.5) & (count > 1)
        else:
            content = torch.zeros(count, dtype=dtype)
        return content.untyped_storage()


def leaves(tree: Any) -> Iterator[Any]:
    """What an operation's arguments or results hold, lists and tuples opened (cheaper than pytree for these)."""
    if isinstance(tree, (list, tuple)):
        for branch in tree:
            yield from leaves(branch)
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from leaves(branch)
    else:
        yield tree


def tensors_in(args: Any, kwargs: Any = None) -> list[torch.Tensor]:
    """The tensors among an operation's arguments or results. (Without a generator: every operation asks.)"""
    found = []
    for each in args if not kwargs else (*args, *kwargs.values()):
        if isinstance(each, torch.Tensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            found += tensors_in(each)
    return found


def replace_by_views(args: Iterable[Any], values: Iterator[Value]) -> list[Any]:
    """The same arguments, each tensor among them as a View of the next of ``values``."""
    return [
        View(next(values), each)
        if isinstance(each, torch.Tensor)
        else (type(each)(replace_by_views(each, values)) if isinstance(each, (list, tuple)) else each)
        for each in args
    ]


def map_leaves(change: Any, tree: Any) -> Any:
    """The same lists, tuples and dicts with every leaf changed."""
    if isinstance(tree, (list, tuple)):
        return type(tree)([map_leaves(change, branch) for branch in tree])
    if isinstance(tree, dict):
        return {key: map_leaves(change, branch) for key, branch in tree.items()}
    return change(tree)
