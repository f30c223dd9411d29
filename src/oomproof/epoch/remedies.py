"""What to change about the data so that no batch is over the budget: by the model of memory, nothing more is traced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from oomproof.epoch.features import batch_features
from oomproof.epoch.images import Images
from oomproof.epoch.memory_model import MemoryModel
from oomproof.epoch.search import find_worst
from oomproof.epoch.skyline import find_skyline
from oomproof.memory.batch_rule import Integers
from oomproof.memory.epoch import Remedy

MOST_DROPPED = 40
NAMED = 10
STEP = 32
"""pixels by which the shorter side is made smaller"""


def find_remedies(images: Images, model: MemoryModel, count: int, limit: float) -> tuple[Remedy, ...]:
    """Each of them alone is enough."""
    pool = _pool(images, count + MOST_DROPPED)
    found = (
        _drop(pool, model, count, limit),
        _crop(images, pool, model, count, limit),
        _resize(pool, model, count, limit),
    )
    return tuple(each for each in found if each is not None)


def _pool(images: Images, depth: int) -> Images:
    """Images that are in the worst batch, or come to be when worse ones go."""
    places = [
        find_skyline(images, np.flatnonzero(images.groups == number), depth) for number in np.unique(images.groups)
    ]
    return images.at(np.concatenate(places))


def _needs(images: Images, model: MemoryModel, count: int) -> tuple[float, tuple[int, ...]]:
    worst = find_worst(images, model, min(count, len(images)), most=1)[0]
    heights, widths = images.sizes
    return float(model.predict(batch_features(images, heights, widths, np.array([worst])))[0]), worst


def _drop(pool: Images, model: MemoryModel, count: int, limit: float) -> Remedy | None:
    """The fewest images by any of the orders; None where too many would have to go."""
    heights, widths = pool.sizes
    found = [
        _drop_by(key, pool, model, count, limit) for key in (pool.objects, heights * widths, pool.objects * widths)
    ]
    dropped = min((each for each in found if each is not None), key=len, default=None)
    return None if dropped is None else Remedy("drop", len(dropped), tuple(dropped[:NAMED]), len(dropped))


def _drop_by(key: Integers, pool: Images, model: MemoryModel, count: int, limit: float) -> list[str] | None:
    """Names, one by one of the worst batch, whichever has most of ``key``."""
    kept, dropped = np.arange(len(pool)), list[str]()
    while len(dropped) <= MOST_DROPPED and len(kept) > count:
        needs, worst = _needs(pool.at(kept), model, count)
        if needs <= limit:
            return dropped
        gone = max(worst, key=lambda place: int(key[kept[place]]))
        dropped.append(pool.names[kept[gone]])
        kept = np.delete(kept, gone)
    return None


def _crop(images: Images, pool: Images, model: MemoryModel, count: int, limit: float) -> Remedy | None:
    """So that no image has more than a number of objects."""

    def is_enough(most: int) -> bool:
        return _needs(replace(pool, objects=np.minimum(pool.objects, most)), model, count)[0] <= limit

    most = _largest(is_enough, 1, int(pool.objects.max()) - 1)
    if most is None:
        return None
    concerned = np.flatnonzero(images.objects > most)
    worst = concerned[np.argsort(-images.objects[concerned], kind="stable")]
    return Remedy("crop", most, tuple(images.names[place] for place in worst[:NAMED]), len(concerned))


def _resize(pool: Images, model: MemoryModel, count: int, limit: float) -> Remedy | None:
    """To a shorter side that is smaller; the longest follows in proportion."""
    side = max(pool.rule.sides, default=0)
    if not side:
        return None

    def is_enough(steps: int) -> bool:
        rule = replace(pool.rule, sides=(steps * STEP,), longest=round(pool.rule.longest * steps * STEP / side))
        return _needs(replace(pool, rule=rule), model, count)[0] <= limit

    steps = _largest(is_enough, max(1, side // STEP // 3), (side - 1) // STEP)
    return None if steps is None else Remedy("resize", steps * STEP, (), len(pool))


def _largest(is_enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest number from ``low`` to ``high`` that is enough; None: not even the smallest is."""
    if low > high or not is_enough(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_enough(middle) else (low, middle - 1)
    return low
