"""The batches that can be the worst, where they are few: then all of them are traced and no model of memory is needed.

For jobs whose traces take long. Where every image comes out at one size and its ground truth is padded, all batches are
alike; where only the number of objects differs, the most crowded images are the worst batch.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from oomproof.epoch.exploring import Exploring, Places
from oomproof.epoch.features import batch_features
from oomproof.epoch.images import Images
from oomproof.epoch.probes import order_by_usualness
from oomproof.epoch.skyline import find_skyline

FEW = 4


def find_few(images: Images, count: int) -> list[Places]:
    """No batch of ``count`` images needs more than one of these; none where they would be many."""
    pools = []
    for number in np.unique(images.groups):
        members = np.flatnonzero(images.groups == number)
        size = min(count, len(members))
        pools.append((find_skyline(images, members, size), size))
    if sum(comb(len(pool), size) for pool, size in pools) > FEW:
        return []
    return [places for pool, size in pools for places in combinations(sorted(pool.tolist()), size)]


def find_usual(exploring: Exploring) -> Places:
    """A batch of usual images: the worst one itself where all batches are alike."""
    images, worst = exploring.images, exploring.find_worst_traced().places
    usual = tuple(sorted(order_by_usualness(images)[: len(worst)]))
    heights, widths = images.sizes
    rows = batch_features(images, heights, widths, np.array([worst, usual]))
    return worst if (rows[0] == rows[1]).all() else usual
