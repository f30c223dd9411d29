"""The batches that a model of memory is first fitted to: small ones, of the dataset's usual and extreme images."""

from __future__ import annotations

import numpy as np

from oomproof.epoch.images import Images


def choose_probes(images: Images, count: int) -> list[tuple[int, ...]]:
    """Pairs and one triple (batches of ``count`` images at the most): large and small, crowded and sparse, and mixed.
    Each tells something apart: pixels from images, objects from pixels, the most crowded image from the sum."""
    heights, widths = images.sizes
    areas, objects = heights * widths, images.objects
    by_area = np.argsort(areas, kind="stable").tolist()
    usual = order_by_usualness(images)
    crowded = np.argsort(-objects, kind="stable").tolist()
    largest, smallest = by_area[::-1], by_area
    sparse = np.argsort(objects, kind="stable").tolist()
    heavy = np.argsort(-objects * areas, kind="stable").tolist()
    wanted: list[list[int]] = [
        usual[:2],
        usual[:3],
        crowded[:2],
        [crowded[0], usual[0]],
        largest[:2],
        smallest[:2],
        [int(heights.argmax()), int(widths.argmax())],
        sparse[:2],
        heavy[:2],
    ]
    found = []
    for places in wanted:
        chosen = list(dict.fromkeys(places))
        chosen += [place for place in usual if place not in chosen][: max(0, 2 - len(chosen))]
        found.append(tuple(sorted(chosen[: min(count, len(images))])))
    return list(dict.fromkeys(found))


def order_by_usualness(images: Images) -> list[int]:
    """Images of middling size with a middling number of objects first."""
    heights, widths = images.sizes
    distance = _distance(heights * widths) + _distance(images.objects)
    order: list[int] = np.argsort(distance, kind="stable").tolist()
    return order


def _distance(column: np.ndarray) -> np.ndarray:
    """From the median, in places."""
    rank = np.argsort(np.argsort(column, kind="stable"), kind="stable")
    return np.asarray(np.abs(rank - len(column) // 2))
