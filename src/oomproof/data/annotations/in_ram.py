"""What a dataset's annotations take in the memory of a Python process that has loaded them.

As COCO's own API has them: a dict for each object, with lists of numbers. CPython hands memory out in steps of 16
bytes, so that a number takes 32. Held against real processes by bench/host.py.
"""

from __future__ import annotations

import sys

import numpy as np

from oomproof.data.annotations.dataset import Dataset
from oomproof.memory.host_data import HostData

NUMBER, HEAD = 32, 64
"""bytes of a float or a larger integer, and of the head of a list or dict"""
SCATTERED = ("COCO",)
"""formats whose objects lie in memory as they were annotated, not image by image"""
_OBJECT = dict.fromkeys(("segmentation", "area", "iscrowd", "image_id", "bbox", "category_id", "id"))
_IMAGE = dict.fromkeys(("license", "file_name", "coco_url", "height", "width", "date_captured", "flickr_url", "id"))
_OF_IMAGE = sys.getsizeof(_IMAGE) + 4 * 96 + HEAD
"""the dict of an image, its texts (a name, two addresses and a date, as COCO has them), and the list of its objects"""
_INDEX = 90
"""bytes an entry in the tables by which an object is found: by its own number, and by its image's"""
_PICKLED_OBJECT, _PICKLED_NUMBER, _PICKLED_IMAGE = 30, 9, 120
"""bytes of an object in pickled form, of a number in it, and of its image"""


def find_host_data(dataset: Dataset) -> HostData:
    """Bytes of a dataset's annotations as a list and as an array, and of its images as they are decoded."""
    objects, images = len(dataset.vertices), len(dataset)
    vertices, masks = int(dataset.vertices.sum(dtype=np.int64)), int(dataset.mask_bytes.sum(dtype=np.int64))
    with_polygons = int(np.count_nonzero(dataset.vertices))
    coordinates = 2 * vertices + 4 * objects
    numbers = NUMBER * (coordinates + 3 * objects)  # its area, its number and its image's
    containers = HEAD * (3 * objects + with_polygons)
    # Lists that grow by appending have an eighth to spare.
    pointers = (sys.getsizeof(_OBJECT) - HEAD) * objects + 9 * coordinates + 32 * with_polygons
    listed = numbers + containers + pointers + masks + _INDEX * objects + (_OF_IMAGE + _INDEX) * images
    pixels = int(np.sum(dataset.widths.astype(np.int64) * dataset.heights.astype(np.int64)))
    return HostData(
        listed=listed,
        numbers=numbers,
        containers=containers,
        readings=max(1, objects if dataset.format in SCATTERED else images),
        packed=_PICKLED_NUMBER * coordinates + _PICKLED_OBJECT * objects + masks + _PICKLED_IMAGE * images,
        decoded=3 * pixels,
    )
