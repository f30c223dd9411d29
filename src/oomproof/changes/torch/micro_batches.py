"""A batch, in whatever form the data loader gives it, cut into micro-batches along its images.

split((images, labels), 3)                      # tensors: along dimension 0
split((list of images, list of targets), 3)     # lists with an entry for every image
split({"pixel_values": ..., "labels": [...]}, 3)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

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
    count = max(1, min(count, images))
    ends = [0, *accumulate(images // count + (place < images % count) for place in range(count))]
    if _is_list_of_images(batch):
        return [like_sequence(batch, list(batch[first:last])) for first, last in pairwise(ends)]
    return [_part(batch, images, first, last, whole=True) for first, last in pairwise(ends)]


def splittable_images(batch: Any) -> int:
    """How many images a batch has; 0 where they cannot be counted, or the batch cannot be split along them."""
    try:
        images = images_in(batch)
        split(batch, min(2, max(1, images)))
    except InputError:
        return 0
    return images


def move_batch(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor on ``device``."""
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=True), batch)


def _counts(batch: Any) -> Iterator[int]:
    """What speaks for a number of images, the surest first."""
    if isinstance(batch, torch.Tensor):
        if batch.dim():
            yield batch.shape[0]
    elif _is_list_of_images(batch):
        yield len(batch)
    elif isinstance(batch, (list, tuple, Mapping)):
        fields = list(batch.values()) if isinstance(batch, Mapping) else batch
        for field in fields:
            if isinstance(field, torch.Tensor):
                yield from _counts(field)
        for field in fields:
            if isinstance(field, Mapping):
                yield from _counts(field)
            elif isinstance(field, (list, tuple)) and any(isinstance(part, (torch.Tensor, Mapping)) for part in field):
                yield len(field)


def _is_list_of_images(batch: Any) -> bool:
    """A list with an entry for every image, where another would have an entry for every field of the batch."""
    if not isinstance(batch, (list, tuple)) or not batch:
        return False
    return all(isinstance(part, Mapping) for part in batch) or all(
        isinstance(part, torch.Tensor) and part.dim() == _AN_IMAGE and part.shape[0] in _CHANNELS for part in batch
    )


def _part(field: Any, images: int, first: int, last: int, whole: bool = False) -> Any:
    if isinstance(field, torch.Tensor):
        if field.dim() == 0:
            return field
        if field.shape[0] != images:
            raise CannotDo(
                f"a tensor of shape {tuple(field.shape)} in a batch of {images} images has no row for each image, so "
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
