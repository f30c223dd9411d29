"""Data loading that goes on when host memory runs out: the rest of the epoch comes from half as many workers.

for batch in guard.load(loader):        # the batches of ``for batch in loader``, each of them once, in the same order
    ...
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from oomproof.errors import OutOfMemory
from oomproof.run.guard.failures import CaughtFailure, chain, free_memory, is_out_of_memory

DOING = "data loading"
# torch/utils/data/_utils/signal_handling.py and dataloader.py, of PyTorch 2.4 to 2.14
_KILLED = re.compile(
    r"DataLoader worker .*(killed by signal: (Killed|Bus error)|shared memory)|received 0 items of ancdata"
)

_NOTICED = 1.0
"""seconds in which the system tells a process that its child has died"""


class _Remembered:
    """A batch sampler, and the batches it has handed out that have not come back yet."""

    def __init__(self, plain: Iterable[Any]) -> None:
        self._plain = plain
        self._rest: Iterator[Any] | None = None
        self.out: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        if self._rest is None:
            self._rest = iter(self._plain)
        again, self.out = self.out, []
        for indices in again:
            self.out.append(indices)
            yield indices
        for indices in self._rest:
            self.out.append(indices)
            yield indices


def load_with_fewer(loader: Iterable[Any], tell: Callable[[CaughtFailure, str], None]) -> Iterator[Any]:
    """The batches of a loader. ``tell(failure, change)`` is called each time memory ran out."""
    if not isinstance(loader, DataLoader) or not _can_resume(loader):
        yield from _explain_failures(iter(loader), "")
        return
    assert loader.batch_sampler is not None
    remembered = _Remembered(loader.batch_sampler)
    workers = loader.num_workers
    while True:
        random = torch.get_rng_state()
        batches = iter(_copy_of(loader, remembered, workers))
        if workers < loader.num_workers:  # its seed was drawn once; the training must not see that it was drawn again
            torch.set_rng_state(random)
        failure = None
        while failure is None:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception as error:
                cause = _find_cause(error)
                if not _is_memory(cause):
                    raise
                failure = CaughtFailure(DOING, str(cause) or type(cause).__name__)
            else:
                remembered.out.pop(0)
                yield batch
        del batches  # ends its workers
        free_memory(torch.device("cpu"))
        if workers == 0:
            raise OutOfMemory(_last_words(failure, "without workers"))
        workers //= 2
        tell(
            failure,
            f"the rest of the epoch comes from {_workers(workers)}: the same images, other random augmentations",
        )


def _can_resume(loader: DataLoader[Any]) -> bool:
    """Whether the rest of an epoch can be asked for: by indices, in order."""
    return (
        type(loader) is DataLoader
        and not isinstance(loader.dataset, IterableDataset)
        and loader.batch_sampler is not None
        and loader.num_workers > 0
        and getattr(loader, "in_order", True)
    )


def _copy_of(loader: DataLoader[Any], sampler: Any, workers: int) -> DataLoader[Any]:
    """The same loader with another sampler and number of workers; it draws its seed as the loader would."""
    with_workers: dict[str, Any] = {}
    if workers:
        with_workers = {
            "prefetch_factor": loader.prefetch_factor,
            "timeout": loader.timeout,
            "multiprocessing_context": loader.multiprocessing_context,
        }
    return DataLoader(
        loader.dataset,
        batch_sampler=sampler,
        num_workers=workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        **with_workers,
    )


def _explain_failures(batches: Iterator[Any], how: str) -> Iterator[Any]:
    """Batches that cannot be asked for again: an error says what to do."""
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except Exception as error:
            cause = _find_cause(error)
            if not _is_memory(cause):
                raise
            raise OutOfMemory(_last_words(CaughtFailure(DOING, str(cause) or type(cause).__name__), how)) from None
        yield batch


def _find_cause(error: Exception) -> Exception:
    """A worker that dies while it hands a batch over is first seen as a broken connection; a moment later PyTorch's
    handler of signals raises what killed it, wherever the process is then."""
    if isinstance(error, (ConnectionError, EOFError)):
        try:
            time.sleep(_NOTICED)
        except RuntimeError as killed:
            return killed
    return error


def _is_memory(error: Exception) -> bool:
    return is_out_of_memory(error) or any(_KILLED.search(str(each)) for each in chain(error))


def _last_words(failure: CaughtFailure, how: str) -> str:
    return (
        f"out of host memory in {failure.doing}{' ' * bool(how)}{how}: {' '.join(failure.text.split())[-300:]}. Next: "
        "fewer workers, a smaller prefetch_factor, or a dataset that reads files when asked instead of keeping them"
    )


def _workers(count: int) -> str:
    return "the main process" if count == 0 else f"{count} worker{'s' * (count != 1)}"
