"""How a training makes batches of its images: what they are resized to, padded to, and which of them come together.

>>> rule = BatchRule(4, "shorter side to 800", sides=(640, 800), longest=1333, divisor=32)
>>> [side.tolist() for side in resize(rule, np.array([480]), np.array([640]), 800)]
[[800], [1067]]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Grouping = Literal["", "upright", "ratio"]


@dataclass(frozen=True)
class BatchRule:
    """What happens to the images of one step on one device."""

    images: int
    words: str
    """the rule, as a reader would check it against his training"""
    sides: tuple[int, ...] = ()
    """what the shorter side is resized to, one of them drawn for each image; none: images stay as they are"""
    longest: int = 0
    """what the longer side may become; 0: anything"""
    size: tuple[int, int] | None = None
    """(height, width) that every image is brought to"""
    divisor: int = 1
    """batches are padded to the largest height and width in them, and on to multiples of this"""
    by_network: bool = False
    """the network itself resizes: it is given images as they are stored"""
    rounds: bool = True
    """sides are rounded; False: fractions are dropped"""
    grouping: Grouping = ""
    """which images may share a batch: any, upright or lying ones, those of like width to height"""
    groups_by: Grouping = "upright"
    """how the framework groups images, where it is told to"""
    empty: bool = True
    """whether images without objects are trained on"""
    same: bool = False
    """every batch is like every other, whatever images it is made of"""
    repeats: bool = False
    """images come again where there are fewer than a batch has"""
    most_objects: int = 0
    """objects that an image keeps; those beyond are dropped. 0: all of them"""
    padded_objects: bool = False
    """ground truth of every image is padded to ``most_objects``"""
    crowds: bool = False
    """whether one box for many objects is trained on like any other"""
    evaluates_stored: bool = False
    """evaluation is handed images as they are stored beside those that were resized"""
    exact: bool = True
    """False: the training may make smaller batches than these, never larger ones"""


def regroup(rule: BatchRule, grouped: bool | None) -> BatchRule:
    """With grouping turned on or off; None: as it is. Any images may meet where nobody knows how they are grouped."""
    return rule if grouped is None else replace(rule, grouping=rule.groups_by if grouped else "")


def describe_rule(rule: BatchRule) -> str:
    """The rule in a sentence."""
    groups = {
        "": "any images share a batch",
        "upright": "upright and lying images come in batches of their own",
        "ratio": "images of like aspect ratio share a batch",
    }
    return f"{rule.words}; {groups[rule.grouping]}" + ("" if rule.exact else " (an upper bound)")


def resize(rule: BatchRule, heights: Integers, widths: Integers, side: int | Integers) -> tuple[Integers, Integers]:
    """Sizes after resizing to a shorter side of ``side`` pixels (one, or one for each image)."""
    if rule.size is not None:
        return np.full_like(heights, rule.size[0]), np.full_like(widths, rule.size[1])
    if not rule.sides:
        return heights, widths
    scale = np.asarray(side) / np.minimum(heights, widths)
    if rule.longest:
        scale = np.minimum(scale, rule.longest / np.maximum(heights, widths))
    add = 0.5 if rule.rounds else 0.0  # torchvision drops fractions as they come: 281 x (150 / 281) becomes 149
    high, wide = (np.maximum(1, np.floor(each * scale + add)).astype(np.int64) for each in (heights, widths))
    return high, wide


def pad(rule: BatchRule, sides: Any) -> Integers:
    """Up to the next multiple of the divisor."""
    return np.asarray(-(-np.asarray(sides) // rule.divisor) * rule.divisor, dtype=np.int64)


def group(rule: BatchRule, heights: Integers, widths: Integers) -> Integers:
    """A number for each image; only images of one number come together in a batch. ``ratio`` are the bins of
    torchvision's reference script (--aspect-ratio-group-factor 3)."""
    if rule.grouping == "upright":
        return np.asarray(widths > heights, dtype=np.int64)
    if rule.grouping == "ratio":
        return np.digitize(widths / heights, 2.0 ** np.linspace(-1, 1, 7)).astype(np.int64)
    return np.zeros(len(heights), dtype=np.int64)
