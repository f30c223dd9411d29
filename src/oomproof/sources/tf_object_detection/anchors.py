"""Anchors of SSD for a larger input: those for the smallest objects keep their size in pixels.

Anchors of ``ssd_anchor_generator`` are parts of the image's side. In a larger input they would all grow with it, and
the small objects for whose sake it was made larger would match none. The largest ones still cover the image; those
between are spread as before. The number of anchors stays, and with it the memory. Anchors of
``multiscale_anchor_generator`` and ``grid_anchor_generator`` are in pixels and need no change.

With ``reduce_boxes_in_lowest_layer``, which is true by default, the smallest anchor is no scale of the config but a
tenth of the base anchor, written into the API's code. Only a smaller base makes it smaller; scales, which are parts of
the base too, are raised by as much as it shrinks.
"""

from __future__ import annotations

import math
from typing import Any

from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.sizes import Size, has_size, size_of

_PATH = "model.ssd.anchor_generator.ssd_anchor_generator"
_REDUCED = f"{_PATH}.reduce_boxes_in_lowest_layer"
_BASE = tuple(f"{_PATH}.base_anchor_{side}" for side in ("height", "width"))
_LOWEST_SCALE = 0.1
"""of the square anchor in a reduced lowest layer (create_ssd_anchors of multiple_grid_anchor_generator.py)"""


def anchors_for_size(config: Config, size: Size) -> dict[str, Any]:
    """Values by path; none where the input does not grow, or anchors are in pixels."""
    if config.which("model") != "ssd" or not config.is_set(_PATH) or not has_size(config):
        return {}
    factor = min(size_of(config)) / min(size)
    if factor >= 1:
        return {}
    reduced = config.value(_REDUCED)
    base = factor if reduced else 1.0
    found = {path: _round_value(config.value(path) * base) for path in _BASE} if reduced else {}
    scales = config.value(f"{_PATH}.scales")
    if scales:
        return {**found, f"{_PATH}.scales": tuple(_round_value(each / base) for each in _spread(scales, factor))}
    if reduced:  # min_scale stays: its part of the smaller base is what it should be
        return {**found, f"{_PATH}.max_scale": _round_value(config.value(f"{_PATH}.max_scale") / base)}
    return {f"{_PATH}.min_scale": _round_value(config.value(f"{_PATH}.min_scale") * factor)}


def smallest_anchor(config: Config, size: Size) -> float:
    """The side of the smallest anchor in pixels, for SSD with anchors relative to the image; 0 for others."""
    if config.which("model") != "ssd" or not config.is_set(_PATH):
        return 0.0
    scales = config.value(f"{_PATH}.scales") or (config.value(f"{_PATH}.min_scale"),)
    lowest = (_LOWEST_SCALE,) if config.value(_REDUCED) else ()
    side = min((*scales, *lowest)) * min(config.value(path) for path in _BASE)
    return float(side * min(size))


def _spread(scales: tuple[float, ...], factor: float) -> list[float]:
    """From the smallest, made smaller, to the largest as it is; even on a scale of ratios."""
    if not 0 < min(scales) < max(scales):
        return [each * factor for each in scales]
    low, high = math.log(min(scales)), math.log(max(scales))
    start = low + math.log(factor)
    return [math.exp(start + (math.log(each) - low) / (high - low) * (high - start)) for each in scales]


def _round_value(value: float) -> float:
    return float(f"{value:.4g}")
