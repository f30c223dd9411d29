"""The images that the worst batch can be made of: those that fewer others exceed in everything than a batch has images.

If an image is no larger and no more crowded than another one, the other may take its place and the batch needs no less.
"""

from __future__ import annotations

import numpy as np

from oomproof.epoch.images import Images
from oomproof.memory.batch_rule import Integers


def find_skyline(images: Images, places: Integers, depth: int) -> Integers:
    """Of ``places``, those with fewer than ``depth`` images that are at least as large in every way."""
    heights, widths = images.sizes
    stored = images.stored_heights * images.stored_widths
    table = np.stack([heights, widths, images.objects, stored], axis=1)[places]
    if not images.rule.by_network:
        table = table[:, :3]
    order = np.lexsort(tuple(-column for column in table.T[::-1]))  # whoever exceeds an image comes before it
    kept = np.empty((0, table.shape[1]), dtype=table.dtype)
    found: list[int] = []
    for at in order:
        row = table[at]
        if (kept >= row).all(axis=1).sum() < depth:
            kept = np.vstack([kept, row])
            found.append(int(at))
    return places[np.array(found, dtype=np.int64)]
