"""A batch that a step may have to read a second time: refused where that is impossible, and noticed where it was
changed in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from oomproof.changes.torch.trees import map_tensors, tensors_of
from oomproof.errors import InputError
from oomproof.frameworks.torch import version_of

WRITTEN = (
    "it cannot be begun again, since its loss writes to its batch in place (normalised images would be normalised "
    "twice): let it work on a copy, such as images - mean instead of images.sub_(mean)"
)


class GivenBatch:
    """``was_written``: somebody has written to its tensors since."""

    def __init__(self, batch: Any) -> None:
        refuse_iterators(batch)
        self._before = [(each, version_of(each)) for each in tensors_of(batch) if not each.is_inference()]

    @property
    def was_written(self) -> bool:
        return any(version_of(tensor) != version for tensor, version in self._before)


def refuse_iterators(batch: Any) -> None:
    """At most one level deep, where loaders put their fields."""
    fields = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    for each in (batch, *fields):
        if isinstance(each, Iterator):
            raise InputError(
                f"a {type(each).__name__} can be read only once, and a step that runs out of memory reads its batch "
                "again: give list(...) of it"
            )


def copy_apart(part: Any, device: torch.device) -> Any:
    """The same on the device, in memory of its own: whatever is tried on it, the batch stays as it is."""

    def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
        there = tensor.to(device, non_blocking=True)
        return there.clone() if there is tensor else there

    return map_tensors(copy_tensor, part)
