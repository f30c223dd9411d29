"""The batches that a model of memory takes for the worst: all of them looked at where they are few, else by exchanging
images until no exchange makes a batch worse."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from oomproof.epoch.features import batch_features
from oomproof.epoch.images import Images
from oomproof.epoch.memory_model import MemoryModel
from oomproof.epoch.skyline import find_skyline
from oomproof.memory.batch_rule import Integers

ALL = 30_000
"""batches of a group that are looked at one by one"""
SEEDS = 12
"""images by which an exchange begins, from the largest and from the most crowded"""


def find_worst(images: Images, model: MemoryModel, count: int, most: int = 20) -> list[tuple[int, ...]]:
    """Batches of ``count`` images, the worst first."""
    found: dict[tuple[int, ...], float] = {}
    for number in np.unique(images.groups):
        members = np.flatnonzero(images.groups == number)
        size = min(count, len(members))
        pool = find_skyline(images, members, size)
        found |= _all(images, model, pool, size) if comb(len(pool), size) <= ALL else _climb(images, model, pool, size)
    return sorted(found, key=lambda batch: (-found[batch], batch))[:most]


def _all(images: Images, model: MemoryModel, pool: Integers, size: int) -> dict[tuple[int, ...], float]:
    batches = np.array(list(combinations(sorted(pool.tolist()), size)), dtype=np.int64)
    return _keep(batches, _rate(images, model, batches))


def _climb(images: Images, model: MemoryModel, pool: Integers, size: int) -> dict[tuple[int, ...], float]:
    """From several beginnings, one exchange after the other."""
    found: dict[tuple[int, ...], float] = {}
    for beginning in _beginnings(images, pool, size):
        batch, reached = beginning, float(_rate(images, model, beginning[None])[0])
        while True:
            others = np.setdiff1d(pool, batch)
            tries = np.repeat(batch[None], size * len(others), axis=0)
            rows = np.arange(len(tries))
            tries[rows, rows // len(others)] = np.tile(others, size)
            rated = _rate(images, model, tries)
            found |= _keep(tries, rated)
            if rated.max() <= reached:
                break
            batch, reached = tries[int(rated.argmax())], float(rated.max())
    return found


def _beginnings(images: Images, pool: Integers, size: int) -> list[Integers]:
    """Each of the highest, the widest, the largest and the most crowded images, with the most crowded beside it."""
    heights, widths = (sides[pool] for sides in images.sizes)
    objects, areas = images.objects[pool], heights * widths
    orders = [np.argsort(-key, kind="stable") for key in (heights, widths, areas, objects, objects * areas)]
    crowded = orders[-1]
    found = []
    for order in orders:
        for first in order[:SEEDS]:
            rest = [place for place in crowded if place != first][: size - 1]
            found.append(pool[np.array([first, *rest])])
    tall_and_wide = [orders[0][0], orders[1][0], *crowded]
    found.append(pool[np.array(list(dict.fromkeys(tall_and_wide))[:size])])
    return found


def _rate(images: Images, model: MemoryModel, batches: Integers) -> np.ndarray:
    heights, widths = images.sizes
    return model.predict(batch_features(images, heights, widths, batches))


def _keep(batches: Integers, rated: np.ndarray, most: int = 50) -> dict[tuple[int, ...], float]:
    best = np.argsort(-rated, kind="stable")[:most]
    return {tuple(sorted(batches[at].tolist())): float(rated[at]) for at in best}
