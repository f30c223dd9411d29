"""How Detectron2 makes batches: the data loader resizes images and groups them, the model pads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.memory.batch_rule import BatchRule
from oomproof.sources.detectron2.sizes import images_per_gpu, largest_image

FPN_DIVISOR = 32
"""size_divisibility of FPN: the stride of its coarsest level from the backbone"""


def batch_rule(values: Mapping[str, Any], settings: Mapping[str, Any]) -> BatchRule:
    shorter, longest = values["INPUT.MIN_SIZE_TRAIN"], values["INPUT.MAX_SIZE_TRAIN"]
    sides = (shorter,) if isinstance(shorter, int) else tuple(shorter)
    stay = 0 in sides
    if not stay:
        largest_image({**values, **settings})  # refuses sides that Detectron2 refuses
    grouped = bool(values["DATALOADER.ASPECT_RATIO_GROUPING"])
    divisor = FPN_DIVISOR if "fpn" in str(values["MODEL.BACKBONE.NAME"]).lower() else 1
    dropped = bool(values["DATALOADER.FILTER_EMPTY_ANNOTATIONS"])
    cropped = bool(values["INPUT.CROP.ENABLED"])
    words = "Detectron2 keeps images at their size" if stay else _describe_resizing(sides, longest)
    words += f" and pads to multiples of {divisor}" if divisor > 1 else " and pads to the largest of the batch"
    words += "; random crops (INPUT.CROP) are not counted on" if cropped else ""
    return BatchRule(
        images_per_gpu(settings),
        words,
        () if stay else _choices(sides, str(values["INPUT.MIN_SIZE_TRAIN_SAMPLING"])),
        longest,
        divisor=divisor,
        grouping="upright" if grouped else "",
        empty=not dropped,
        exact=not cropped,
    )


def _choices(sides: tuple[int, ...], sampling: str) -> tuple[int, ...]:
    return tuple(range(min(sides), max(sides) + 1)) if sampling == "range" else sides


def _describe_resizing(sides: tuple[int, ...], longest: int) -> str:
    shorter = f"one of {', '.join(map(str, sides))}" if len(sides) > 1 else str(sides[0])
    return f"Detectron2 resizes the shorter side to {shorter}, the longer to {longest} at most"
