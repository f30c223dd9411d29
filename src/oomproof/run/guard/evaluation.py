"""Validation that goes on when memory runs out: what is left of a batch is done in smaller parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from oomproof.changes.torch.micro_batches import move_batch, part_ranges, splittable_images, take
from oomproof.errors import OutOfMemory
from oomproof.run.guard.failures import attempt, free_memory
from oomproof.run.guard.given_batch import WRITTEN, GivenBatch
from oomproof.run.guard.sizes import Sizes

DOING = "validation"


def evaluate_in_parts(
    run: Callable[[Any], Any], batch: Any, sizes: Sizes, device: torch.device, tell: Callable[[Any, str], None]
) -> list[Any]:
    """What ``run(part)`` gives for each part, in the order of the images. Parts that are done are not done again."""
    images = splittable_images(batch)
    left = part_ranges(images, sizes.count(images)) if images else [(0, 0)]
    found: list[Any] = []
    given = GivenBatch(batch)
    while left:
        first, last = left[0]
        part = take(batch, first, last) if last - first < images else batch
        with torch.no_grad():
            result, failure = attempt(DOING, partial(_run_on, device, run, part))
        if failure is None:
            found.append(result)
            left.pop(0)
            continue
        free_memory(device)
        count = last - first
        if given.was_written:
            failure, count = replace(failure, besides=WRITTEN), 0
        if not count or not sizes.note_failure(count):
            from oomproof.run.guard.diagnosis import describe_validation_end

            raise OutOfMemory(describe_validation_end(failure, count))
        assert sizes.largest is not None
        smaller = sizes.largest
        tell(
            failure,
            f"going on with {smaller} image{'s' * (smaller != 1)} at a time instead of {count}; no result changes",
        )
        left = [
            piece for first, last in left for piece in part_ranges(last - first, -(-(last - first) // smaller), first)
        ]
    if images:
        sizes.note_success(images)
    return found


def _run_on(device: torch.device, run: Callable[[Any], Any], part: Any) -> Any:
    return run(move_batch(part, device))
