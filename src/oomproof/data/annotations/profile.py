"""What is in a dataset, in figures: how large images are, how many objects they have, and which are the worst.

Sizes are (height, width), as everywhere in reports; that of an image that is shown on its side as it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from oomproof.data.annotations.dataset import Dataset, Integers

COMMON = 5
Size = tuple[int, int]


@dataclass(frozen=True)
class Image:
    name: str
    height: int
    width: int
    objects: int
    vertices: int
    mask_bytes: int


@dataclass(frozen=True)
class Profile:
    images: int
    objects: int
    crowds: int
    masks: int
    """objects with polygons or a mask of pixels"""

    smallest: Size
    median: Size
    largest: Size
    """by area"""
    common: tuple[tuple[Size, int], ...]
    """the most frequent sizes and how many images have them"""
    sizes: int
    """how many different ones there are"""
    turned: int

    median_objects: int
    most_of_95: int
    """95 of 100 images have no more objects"""
    most_objects: int
    empty: int
    """images without an object"""
    histogram: tuple[tuple[int, int, int], ...]
    """images with at least, at most so many objects; in steps that double"""

    crowded: tuple[Image, ...]
    huge: tuple[Image, ...]
    detailed: tuple[Image, ...]
    """the worst, worst first: by objects, by area, by vertices of polygons (where there are none, by bytes of masks)"""


def profile(of: Dataset, worst: int = 5) -> Profile:
    heights = np.where(of.turned, of.widths, of.heights).astype(np.int64)
    widths = np.where(of.turned, of.heights, of.widths).astype(np.int64)
    areas, objects = heights * widths, of.objects
    order = np.argsort(areas, kind="stable")
    pairs, counts = np.unique(heights << 32 | widths, return_counts=True)
    common = np.argsort(-counts, kind="stable")[:COMMON]
    details = of.image_vertices if of.vertices.any() else of.image_mask_bytes

    def size(image: int) -> Size:
        return int(heights[image]), int(widths[image])

    def largest_images(key: Integers, least: int = 1) -> tuple[Image, ...]:
        return tuple(_image(of, place, size(place)) for place in _largest(key, worst) if key[place] >= least)

    return Profile(
        images=len(of),
        objects=len(of.box_widths),
        crowds=int(of.crowd.sum()),
        masks=int(((of.vertices > 0) | (of.mask_bytes > 0)).sum()),
        smallest=size(order[0]),
        median=size(order[(len(order) - 1) // 2]),
        largest=size(order[-1]),
        common=tuple(((int(pairs[at] >> 32), int(pairs[at] & 0xFFFFFFFF)), int(counts[at])) for at in common),
        sizes=len(pairs),
        turned=int(of.turned.sum()),
        median_objects=int(np.percentile(objects, 50, method="inverted_cdf")),
        most_of_95=int(np.percentile(objects, 95, method="inverted_cdf")),
        most_objects=int(objects.max()),
        empty=int((objects == 0).sum()),
        histogram=_histogram(objects),
        crowded=largest_images(objects),
        huge=largest_images(areas),
        detailed=largest_images(details),
    )


def _image(of: Dataset, place: int, size: Size) -> Image:
    within = of.objects_of(place)
    vertices, mask_bytes = int(of.vertices[within].sum()), int(of.mask_bytes[within].sum())
    return Image(of.names[place], *size, within.stop - within.start, vertices, mask_bytes)


def _largest(key: Integers, count: int) -> Sequence[int]:
    """The places of the largest values, the first of equals first."""
    places: list[int] = np.argsort(-key, kind="stable")[:count].tolist()
    return places


def _histogram(objects: Integers) -> tuple[tuple[int, int, int], ...]:
    """None, 1, 2, 3 to 4, 5 to 8 ... as far as there are images."""
    most = int(objects.max())
    ends = [-1, 0, 1]
    while ends[-1] < most:
        ends.append(ends[-1] * 2)
    return tuple(
        (low + 1, high, int(((objects > low) & (objects <= high)).sum()))
        for low, high in pairwise(ends if most else ends[:2])
    )
