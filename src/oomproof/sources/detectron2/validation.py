"""How Detectron2 validates: one image at a time, resized by INPUT.MIN_SIZE_TEST, results at the stored size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oomproof.memory.batch_rule import BatchRule, resize
from oomproof.memory.batch_spec import BatchSpec, ImageSpec

USUAL = ImageSpec(480, 640, 0)
"""what most images of COCO are stored as, where nothing is known of the data"""


def validation_rule(values: Mapping[str, Any]) -> BatchRule:
    side, longest = int(values["INPUT.MIN_SIZE_TEST"]), int(values["INPUT.MAX_SIZE_TEST"])
    words = f"Detectron2 resizes the shorter side to {side}, the longer to {longest} at most"
    return BatchRule(1, words, (side,) if side else (), longest, by_network=True)


def validation_images(values: Mapping[str, Any], given: BatchSpec | None, count: int) -> Sequence[ImageSpec]:
    """As they are stored."""
    return given.images if given is not None else (USUAL,) * max(1, count)


def resize_image(values: Mapping[str, Any], image: ImageSpec) -> tuple[int, int]:
    rule = validation_rule(values)
    sides = resize(rule, np.array([image.height]), np.array([image.width]), rule.sides[0] if rule.sides else 0)
    return int(sides[0][0]), int(sides[1][0])


def describe_validation(values: Mapping[str, Any], given: BatchSpec | None) -> tuple[str, ...]:
    if given is not None:
        return ()
    return (
        f"validation is that of an image stored as {USUAL.height}x{USUAL.width}, as most of COCO are, with "
        f"{values['TEST.DETECTIONS_PER_IMAGE']} objects found: give --data for the largest of yours",
    )
