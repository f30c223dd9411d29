"""The linear rule: with a batch of half the size, half the learning rate and twice the steps (Goyal et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def rescale_schedule(values: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The schedule for ``factor`` times the batch, as Detectron2's own ``auto_scale_workers`` rescales it.

    >>> rescale_schedule({"SOLVER.BASE_LR": 0.02, "SOLVER.MAX_ITER": 90000, "SOLVER.STEPS": (60000, 80000),
    ...           "SOLVER.WARMUP_ITERS": 1000}, 0.5)["SOLVER.STEPS"]
    (120000, 160000)
    """
    return {
        "SOLVER.BASE_LR": float(f"{values['SOLVER.BASE_LR'] * factor:.6g}"),
        "SOLVER.MAX_ITER": round(values["SOLVER.MAX_ITER"] / factor),
        "SOLVER.STEPS": tuple(round(step / factor) for step in values["SOLVER.STEPS"]),
        "SOLVER.WARMUP_ITERS": round(values["SOLVER.WARMUP_ITERS"] / factor),
    }
