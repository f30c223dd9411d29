"""Anchors of SSD for a larger input: those for the smallest objects keep their size in pixels.

Anchors of ``ssd_anchor_generator`` are parts of the image's side. In a larger input they would all grow with it, and
the small objects for whose sake it was made larger would match none. The largest ones still cover the image; those
between are spread as before. The number of anchors stays, and with it the memory. Anchors of
``multiscale_anchor_generator`` and ``grid_anchor_generator`` are in pixels and need no change.
"""

from __future__ import annotations

import math
from typing import Any

from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.sizes import Size, has_size, size_of

_PATH = "model.ssd.anchor_generator.ssd_anchor_generator"


def anchors_for_size(config: Config, size: Size) -> dict[str, Any]:
    """Values by path; none where the input does not grow, or anchors are in pixels."""
    if config.which("model") != "ssd" or not config.is_set(_PATH) or not has_size(config):
        return {}
    factor = min(size_of(config)) / min(size)
    if factor >= 1:
        return {}
    scales = config.value(f"{_PATH}.scales")
    if scales:
        return {f"{_PATH}.scales": tuple(_spread(scales, factor))}
    smallest = config.value(f"{_PATH}.min_scale")
    return {f"{_PATH}.min_scale": _round_value(smallest * factor)}


def smallest_anchor(config: Config, size: Size) -> float:
    """The side of the smallest anchor in pixels, for SSD with anchors relative to the image; 0 for others."""
    if config.which("model") != "ssd" or not config.is_set(_PATH):
        return 0.0
    scales = config.value(f"{_PATH}.scales")
    return float(min(scales) if scales else config.value(f"{_PATH}.min_scale")) * min(size)


def _spread(scales: tuple[float, ...], factor: float) -> list[float]:
    """From the smallest, made smaller, to the largest as it is; even on a scale of ratios."""
    low, high = math.log(min(scales)), math.log(max(scales))
    if high <= low:
        return [_round_value(each * factor) for each in scales]
    start = low + math.log(factor)
    return [_round_value(math.exp(start + (math.log(each) - low) / (high - low) * (high - start))) for each in scales]


def _round_value(value: float) -> float:
    return float(f"{value:.4g}")
