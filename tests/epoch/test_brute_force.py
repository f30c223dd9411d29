"""The named batch against every batch that a small dataset can make, each of them traced."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from small_detector import RESIZED, random_dataset, small_job

from oomproof.epoch.exploring import Exploring
from oomproof.epoch.images import see_images
from oomproof.memory.cards.devices import find_device
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest


def is_worst(seed: int) -> bool:
    """Whether the batch that is named for a random dataset needs the most of all; its forecast is never exceeded."""
    chance = np.random.default_rng(seed)
    count, images = int(chance.integers(1, 4)), int(chance.integers(5, 9))
    rule = replace(RESIZED, images=count, grouping=str(chance.choice(["", "upright"])), by_network=False)  # type: ignore[arg-type]
    job = small_job(int(chance.choice([4, 16])), bool(chance.integers(0, 2)), rule)
    device, settings = find_device("RTX 3060"), resolve(job, {})
    exploring = Exploring(job, see_images(random_dataset(seed, images), rule), TraceRequest(settings, device))
    worst, _ = exploring.explore()
    seen = dict(exploring.traced)
    groups = exploring.images.groups
    every = [
        batch
        for number in set(groups.tolist())
        for batch in combinations(np.flatnonzero(groups == number).tolist(), min(count, int((groups == number).sum())))
    ]
    peaks = {batch: exploring.trace(batch, "every batch").allocated for batch in every}
    assert worst.forecast.allocated.high >= max(peaks.values())
    assert worst.places in seen
    return worst.allocated >= max(peaks.values())


@pytest.mark.slow
def test_the_named_batch_is_the_worst() -> None:
    assert [seed for seed in range(2) if not is_worst(seed)] == []


@pytest.mark.thorough
def test_the_named_batch_is_the_worst_in_99_of_100_datasets() -> None:
    assert sum(is_worst(seed) for seed in range(100)) >= 99
