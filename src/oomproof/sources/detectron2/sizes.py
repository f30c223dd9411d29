"""How many images a GPU gets, and how large they can become: what a config says about the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.errors import CannotDo, InputError
from oomproof.memory.parallel import Parallel, multiples_near

MOST_ON_A_MACHINE = 8
"""GPUs of one machine where --gpus names more, as of the machines that the model zoo was trained on"""


def count_processes(settings: Mapping[str, Any]) -> int:
    """Of one machine: Detectron2 starts one for each GPU."""
    gpus: int = settings["gpus"]
    return min(max(gpus, 1), MOST_ON_A_MACHINE)


def images_per_gpu(settings: Mapping[str, Any]) -> int:
    """The share of one GPU; a remainder is refused, as by Detectron2."""
    total, gpus = settings["SOLVER.IMS_PER_BATCH"], settings["gpus"]
    written_for = settings["SOLVER.REFERENCE_WORLD_SIZE"]
    if written_for and total > 0 and total % written_for:
        raise CannotDo(
            f"SOLVER.IMS_PER_BATCH {total} must be divisible by SOLVER.REFERENCE_WORLD_SIZE {written_for}, the "
            f"GPUs it was written for; take {multiples_near(total, written_for)}"
        )
    if gpus < 1:
        raise InputError(f"gpus must be at least 1; got {gpus}")
    return Parallel(written_for or gpus).share(total, "SOLVER.IMS_PER_BATCH")


def largest_image(settings: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of the largest batch after resizing, before the model pads it. Upright and lying images in one
    batch make it square."""
    shorter, longest = settings["INPUT.MIN_SIZE_TRAIN"], settings["INPUT.MAX_SIZE_TRAIN"]
    sides = [shorter] if isinstance(shorter, int) else list(shorter)
    if not sides or not all(isinstance(side, int) and side >= 0 for side in sides):
        raise InputError(f"INPUT.MIN_SIZE_TRAIN must be sides in pixels such as (640, 800); got {shorter}")
    side = max(sides)
    if 0 in sides:
        raise InputError(
            "INPUT.MIN_SIZE_TRAIN has 0: images keep the size they have, which the config does not say. Give the "
            "largest: --image-size 800x1333"
        )
    if longest < 1:
        raise InputError(f"INPUT.MAX_SIZE_TRAIN must be at least 1 pixel; got {longest}")
    side = min(side, longest)
    mixed = not settings["DATALOADER.ASPECT_RATIO_GROUPING"] and images_per_gpu(settings) > 1
    return (longest, longest) if mixed else (side, longest)


def is_beyond_config(settings: Mapping[str, Any]) -> bool:
    """Whether ``image_size`` is larger than the config lets an image become, by more than a pixel of rounding."""
    shorter, longest = settings["INPUT.MIN_SIZE_TRAIN"], settings["INPUT.MAX_SIZE_TRAIN"]
    sides = [shorter] if isinstance(shorter, int) else list(shorter)
    if 0 in sides:  # images keep the size they have
        return False
    least, most = sorted(settings["image_size"])
    grouped = settings["DATALOADER.ASPECT_RATIO_GROUPING"]  # else a batch can be square
    return bool(most > longest + 1 or (grouped and least > max(sides) + 1))
