"""How torchvision's detectors make batches: the network resizes each image and pads the batch."""

from __future__ import annotations

from oomproof.memory.batch_rule import BatchRule
from oomproof.sources.job import Settings
from oomproof.sources.torchvision import families

DIVISOR = 32
"""size_divisible of GeneralizedRCNNTransform (torchvision 0.29)"""


def batch_rule(model: str, settings: Settings) -> BatchRule:
    """Of GeneralizedRCNNTransform. Any images may meet, as with DataLoader(shuffle=True). Images without objects are
    trained on: the reference script drops them for COCO alone."""
    height, width = settings["image_size"]
    if families.has_fixed_input(model):
        words = f"torchvision resizes every image to {height}x{width}"
        return BatchRule(settings["batch"], words, size=(height, width), by_network=True, groups_by="ratio")
    short, long = min(height, width), max(height, width)
    words = (
        f"torchvision resizes the shorter side to {short}, the longer to {long} at most, "
        f"and pads to multiples of {DIVISOR}"
    )
    return BatchRule(
        settings["batch"], words, (short,), long, divisor=DIVISOR, by_network=True, rounds=False, groups_by="ratio"
    )
