"""How a run validates between epochs, as far as memory is concerned."""

from __future__ import annotations

from dataclasses import dataclass

from oomproof.errors import InputError


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
