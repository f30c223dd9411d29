"""Memory that runs out where a test wants it: at the n-th operation that makes a new tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WORDS = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.76 GiB"


class FailingAllocations(TorchDispatchMode):
    """``at``: the allocations that fail, counted from 0. ``too_large``: so many numbers in one tensor always fail."""

    def __init__(self, at: set[int] | None = None, too_large: int | None = None) -> None:
        super().__init__()
        self.at, self.too_large, self.count, self.failed = at or set(), too_large, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        new = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor) and _storage(leaf) not in given]
        if new:
            place, self.count = self.count, self.count + 1
            large = self.too_large is not None and any(leaf.numel() >= self.too_large for leaf in new)
            if place in self.at or large:
                self.failed += 1
                raise torch.cuda.OutOfMemoryError(WORDS)
        return found


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
