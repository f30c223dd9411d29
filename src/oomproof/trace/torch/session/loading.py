"""DataLoaders of a script: when a batch is asked for, with how many workers, and which batch comes first."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader

from oomproof.frameworks.torch import DataLoaderIterator, batches_drawn_by
from oomproof.trace.torch.session.look_ahead import LookAhead, describe_batches, spread_batches


class Loaders:
    """The loaders that were asked for a batch. ``batches``: how many are looked at; None: a few."""

    def __init__(self, batches: int | None = None) -> None:
        self._batches = batches
        self._asked: list[DataLoader[Any]] = []
        self._ahead: weakref.WeakKeyDictionary[Any, LookAhead] = weakref.WeakKeyDictionary()
        self._trained: list[LookAhead] = []
        """of the iterators that were asked while gradients are on"""

    def settings(self) -> dict[str, int]:
        """Those of the one with the most workers."""
        most = max(self._asked, key=lambda loader: loader.num_workers, default=None)
        if most is None or not most.num_workers:
            return {"workers": 0}
        return {"workers": most.num_workers, "prefetch_factor": most.prefetch_factor or 2}

    def describe(self) -> str:
        """What the training's batches hold."""
        most = max(self._trained, key=lambda ahead: ahead.largest.nbytes, default=None)
        return "" if most is None else describe_batches(most.held)

    def _next_batch(self, iterator: Any, following: Callable[[Any], Any], updates: int) -> Any:
        ahead = self._ahead.setdefault(iterator, LookAhead(self._batches))
        batch = ahead.hand_over(lambda: following(iterator), updates)
        if torch.is_grad_enabled() and ahead not in self._trained:
            self._trained.append(ahead)
        return batch

    @contextmanager
    def loaders_watched(self, before_batch: Callable[[], None], updates: Callable[[], int]) -> Iterator[None]:
        following = DataLoaderIterator.__next__
        iterate = DataLoader.__iter__

        def next_batch(iterator: Any) -> Any:
            before_batch()
            return self._next_batch(iterator, following, updates())

        def begin(loader: Any) -> Any:
            if loader not in self._asked:
                self._asked.append(loader)
            return iterate(loader)

        handed = patch.object(DataLoaderIterator, "__next__", next_batch)
        drawn = nullcontext() if self._batches == 1 else batches_drawn_by(spread_batches)
        with drawn, handed, patch.object(DataLoader, "__iter__", begin):
            yield
