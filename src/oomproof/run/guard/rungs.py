"""What is left to do when one image alone does not fit: steps of a ladder, the ones that change nothing first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from oomproof.changes.torch.matching import chunk_matching
from oomproof.changes.torch.passes import Passes, unwrap_model
from oomproof.changes.torch.recompute import recompute
from oomproof.errors import CannotDo, InputError

MAY_BE_ALLOWED = ("precision",)


@dataclass(frozen=True)
class Rung:
    """A setting of the training that takes less memory."""

    setting: str
    value: str
    says: str
    """what changes, for the log"""


MATCHING = Rung("matching", "chunked", "anchors are matched a part at a time: the same results")
RECOMPUTE = Rung("checkpoint", "nonreentrant", "blocks are computed again in backward: the same gradients, slower")
HALF = Rung("precision", "bf16", "forward and backward in bf16: allowed, and another rounding")


def rungs_for(passes: Passes, allow: Collection[str]) -> list[Rung]:
    """The rungs that this training has not taken already."""
    unknown = sorted(set(allow) - set(MAY_BE_ALLOWED))
    if unknown:
        raise InputError(f"Guard(allow=...) may name {', '.join(MAY_BE_ALLOWED)}; got {', '.join(unknown)}")
    training = passes.training
    rungs = []
    if training.matching == "whole":
        rungs.append(MATCHING)
    if training.checkpoint == "none":
        rungs.append(RECOMPUTE)
    if "precision" in allow and training.precision == "fp32":
        rungs.append(HALF)
    return rungs


def climb(passes: Passes, rungs: list[Rung]) -> Rung | None:
    """Takes the next rung that this model can take, and applies it."""
    while rungs:
        rung = rungs.pop(0)
        try:
            _apply(passes, rung)
        except CannotDo:
            continue
        changed: dict[str, Any] = {rung.setting: rung.value}
        passes.training = replace(passes.training, **changed)
        return rung
    return None


def _apply(passes: Passes, rung: Rung) -> None:
    model = unwrap_model(passes.model)
    if rung.setting == "matching":
        chunk_matching(model)
    elif rung.setting == "checkpoint":
        recompute(model, rung.value)
