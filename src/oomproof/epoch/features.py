"""What the memory of a batch goes with: pixels, padded pixels, objects, and objects times pixels.

Batches are rows of image numbers; all of them are worked out at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oomproof.epoch.images import Images
from oomproof.memory.batch_rule import Integers, pad

Floats = NDArray[np.float64]

NAMES = (
    "one", "padded pixels", "padded pixels of one image", "own pixels", "stored pixels", "objects",
    "most objects x padded pixels",
    "objects x padded pixels", "objects x own pixels", "objects x stored pixels", "most objects x own pixels",
    "images x most objects",
)  # fmt: skip
"""Every one grows with the size and the objects of any image: an image that is larger and more crowded than another
makes a batch that needs no less."""
_MEGA = 1e6


def find_padded_size(images: Images, places: Sequence[int], sides: Integers | None = None) -> tuple[int, int]:
    """Height and width that the images of a batch are padded to."""
    heights, widths = images.sizes if sides is None else images.sizes_at(sides)
    batch = list(places)
    return int(pad(images.rule, heights[batch].max())), int(pad(images.rule, widths[batch].max()))


def batch_features(images: Images, heights: Integers, widths: Integers, batches: Integers) -> Floats:
    high, wide = heights[batches], widths[batches]
    padded = (pad(images.rule, high.max(axis=1)) * pad(images.rule, wide.max(axis=1))) / _MEGA
    count = batches.shape[1]
    objects = images.objects[batches].astype(float)
    own = high * wide / _MEGA
    stored = (images.stored_heights * images.stored_widths)[batches] / _MEGA
    return np.stack(
        [
            np.ones(len(batches)),
            count * padded,
            padded,
            own.sum(axis=1),
            stored.sum(axis=1),
            objects.sum(axis=1),
            objects.max(axis=1) * padded,
            objects.sum(axis=1) * padded,
            (objects * own).sum(axis=1),
            (objects * stored).sum(axis=1),
            (objects * own).max(axis=1),
            count * objects.max(axis=1),
        ],
        axis=1,
    )
