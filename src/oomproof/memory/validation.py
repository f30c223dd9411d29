"""How a run validates between epochs, as far as memory is concerned."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oomproof.errors import InputError
from oomproof.memory.timeline import PHASES, Ints, Timeline


@dataclass(frozen=True)
class Validation:
    """The model in eval mode, beside the optimizer's state and the gradients that training has left."""

    batch: int = 0
    """images; 0: as the job has it"""
    keeps: int = 0
    """batches whose predictions stay on the device until the end"""
    grad: bool = False
    """without torch.no_grad(): activations are kept although nothing is trained"""

    def __post_init__(self) -> None:
        for name in ("batch", "keeps"):
            if getattr(self, name) < 0:
                raise InputError(f"validation: {name} must be 0 or more; got {getattr(self, name)}")


def as_validation(step: Timeline) -> Timeline:
    """A step that was traced by itself, told as what comes between epochs."""
    forward, validation = PHASES.index("forward"), PHASES.index("validation")

    def name_phase(phases: Ints) -> Ints:
        return np.where(phases == forward, validation, phases)

    calls = replace(step.calls, phase=name_phase(step.calls.phase))
    return replace(step, phase=name_phase(step.phase), mark_phase=name_phase(step.mark_phase), calls=calls)
