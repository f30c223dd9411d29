"""What people call the settings that every training has."""

from __future__ import annotations

from typing import Any

from oomproof.sources.job import OWN_WORDS, Role

BATCHES = ("batch", "batch_size", "images_per_gpu", "bs")
"""the number of images in a step, the most usual name first"""
SIZES = ("image_size", "size", "side", "img_size", "imgsz", "resolution")


def role_of(name: str, default: Any) -> Role | None:
    """The part that a parameter plays, told by its name and its default."""
    if name in BATCHES:
        return "batch" if isinstance(default, int) else None
    return "image size" if name in SIZES else OWN_WORDS.get(name)
