"""DataLoaders of a script: when a batch is asked for, with how many workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch.utils.data import DataLoader

from oomproof.frameworks.torch import DataLoaderIterator


class Loaders:
    """The loaders that were asked for a batch."""

    def __init__(self) -> None:
        self._asked: list[DataLoader[Any]] = []

    def settings(self) -> dict[str, int]:
        """Those of the one with the most workers."""
        most = max(self._asked, key=lambda loader: loader.num_workers, default=None)
        if most is None or not most.num_workers:
            return {"workers": 0}
        return {"workers": most.num_workers, "prefetch_factor": most.prefetch_factor or 2}

    @contextmanager
    def watched(self, before_batch: Callable[[], None]) -> Iterator[None]:
        following = DataLoaderIterator.__next__
        iterate = DataLoader.__iter__

        def next_batch(iterator: Any) -> Any:
            before_batch()
            return following(iterator)

        def begin(loader: Any) -> Any:
            if loader not in self._asked:
                self._asked.append(loader)
            return iterate(loader)

        with patch.object(DataLoaderIterator, "__next__", next_batch), patch.object(DataLoader, "__iter__", begin):
            yield
