"""A batch, in whatever form the data loader gives it, cut into micro-batches along its images.

split((images, labels), 3)                      # tensors: along dimension 0
split((list of images, list of targets), 3)     # lists with an entry for every image
split({"pixel_values": ..., "labels": [...]}, 3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

from oomproof.changes.torch.trees import like_mapping, like_sequence, map_tensors
from oomproof.errors import CannotDo, InputError

_CHANNELS = (1, 3, 4)
_AN_IMAGE = 3


def images_in(batch: Any) -> int:
    """How many images a batch has."""
    count = next(_counts(batch), None)
    if count is None:
        raise CannotDo(
            f"a batch should be a tensor, or lists, tuples and dicts with tensors of one row for each image; in this "
            f"{type(batch).__name__} images cannot be counted. Set accumulate=1, or give such a batch"
        )
    return count


def split(batch: Any, count: int) -> list[Any]:
    """At most ``count`` micro-batches; their numbers of images differ by one at most."""
    if count < 1:
        raise InputError(f"a batch is split into 1 micro-batch or more; got {count}")
    if count == 1:
        return [batch]
    images = images_in(batch)
    return [_take(batch, images, first, last) for first, last in part_ranges(images, count)]


def part_sizes(images: int, count: int) -> list[int]:
    """How many images each of the micro-batches has that ``split`` makes.

    >>> part_sizes(10, 4), part_sizes(2, 4)
    ([3, 3, 2, 2], [1, 1])
    """
    count = max(1, min(count, images))
    return [images // count + (place < images % count) for place in range(count)]


def part_ranges(images: int, count: int, start: int = 0) -> list[tuple[int, int]]:
    """Which images each of them has, the first of which is ``start``.

    >>> part_ranges(10, 4)
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    return list(pairwise(accumulate(part_sizes(images, count), initial=start)))


def take(batch: Any, first: int, last: int) -> Any:
    """Some images of a batch. Of a batch and not of a part of it: what is a field and what has an entry for each image
    shows in the whole, where two things are seldom equally many by chance."""
    return _take(batch, images_in(batch), first, last)


def why_not_split(batch: Any) -> str:
    """The reason, where a batch cannot be split along its images; empty where it can."""
    try:
        split(batch, min(2, max(1, images_in(batch))))
    except InputError as error:
        return str(error)
    return ""


def splittable_images(batch: Any) -> int:
    """How many images a batch has; 0 where they cannot be counted, or the batch cannot be split along them."""
    return 0 if why_not_split(batch) else images_in(batch)


def move_batch(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor on ``device``."""
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=True), batch)


def _take(batch: Any, images: int, first: int, last: int) -> Any:
    if _is_list_of_images(batch):
        return like_sequence(batch, list(batch[first:last]))
    return _part(batch, images, first, last, whole=True)


def _counts(batch: Any) -> Iterator[int]:
    """What speaks for a number of images, the surest first."""
    if isinstance(batch, (torch.Tensor, np.ndarray)):
        if batch.ndim:
            yield batch.shape[0]
    elif _is_list_of_images(batch):
        yield len(batch)
    elif isinstance(batch, (list, tuple, Mapping)):
        fields = list(batch.values()) if isinstance(batch, Mapping) else batch
        yield from _counts_of_fields(fields)


def _counts_of_fields(fields: Sequence[Any]) -> Iterator[int]:
    tests: tuple[Callable[[Any], bool], ...] = (
        lambda field: isinstance(field, torch.Tensor),
        lambda field: isinstance(field, np.ndarray),
        _is_list_of_images,
        lambda field: isinstance(field, Mapping),
    )
    for test in tests:
        for field in fields:
            if test(field):
                yield from _counts(field)
    for field in fields:
        if isinstance(field, (list, tuple)) and any(isinstance(part, (torch.Tensor, Mapping)) for part in field):
            yield len(field)


def _is_list_of_images(batch: Any) -> bool:
    """A list with an entry for every image, where another would have an entry for every field of the batch."""
    if not isinstance(batch, (list, tuple)) or not batch:
        return False
    if all(isinstance(part, Mapping) for part in batch):
        return len(batch) == 1 or bool(set.intersection(*(set(part) for part in batch)))  # fields have other keys each
    if all(isinstance(part, (list, tuple)) for part in batch):
        return _are_samples(batch)
    images = all(
        isinstance(part, torch.Tensor) and part.dim() == _AN_IMAGE and part.shape[0] in _CHANNELS for part in batch
    )
    return images and not (len(batch) == 2 and batch[0].shape == batch[1].shape)  # an input and its target, of 3 or 4


def _are_samples(entries: Sequence[Sequence[Any]]) -> bool:
    """(image, target) for every image, and not a list of images and one of targets: the parts of an entry differ in
    kind, and all entries in the same way."""
    kinds = [tuple(map(_kind_of, entry)) for entry in entries]
    return len(set(kinds)) == 1 and len(set(kinds[0])) > 1


def _kind_of(part: Any) -> Any:
    return (torch.Tensor, part.dim()) if isinstance(part, torch.Tensor) else type(part)


def _part(field: Any, images: int, first: int, last: int, whole: bool = False) -> Any:
    if isinstance(field, (torch.Tensor, np.ndarray)):
        if field.ndim == 0:
            return field
        if field.shape[0] != images:
            what = "a tensor" if isinstance(field, torch.Tensor) else "an array"
            raise CannotDo(
                f"{what} of shape {tuple(field.shape)} in a batch of {images} images has no row for each image, so "
                "the batch cannot be split. Give tensors of one row for each image, or lists of one entry for each"
            )
        return field[first:last]
    if isinstance(field, Mapping):
        return like_mapping(field, {key: _part(value, images, first, last) for key, value in field.items()})
    if isinstance(field, (list, tuple)):
        if len(field) == images and not whole:
            _refuse_two_readings(field, images)
            return like_sequence(field, list(field[first:last]))
        return like_sequence(field, [_part(part, images, first, last) for part in field])
    return field


def _refuse_two_readings(parts: Sequence[Any], images: int) -> None:
    """As many tensors as images, each with as many rows as there are images: one of two readings would be wrong."""
    tensors = all(isinstance(part, torch.Tensor) and part.dim() and part.shape[0] == images for part in parts)
    if tensors and not _is_list_of_images(parts):
        raise CannotDo(
            f"a list of {images} tensors of {images} rows each, in a batch of {images} images, can be an entry for "
            "each image or so many fields. Use a dict for fields, or stack the entries to one tensor"
        )
