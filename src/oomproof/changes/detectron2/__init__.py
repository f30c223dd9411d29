"""For trainings in Detectron2, which has neither: gradient accumulation, and activations that are computed again.

    from oomproof.run.detectron2 import Accumulate
    trainer.register_hooks([Accumulate(4)])             # an iteration is now 4 micro-batches and one update

    from oomproof.run.detectron2 import checkpoint_stages
    checkpoint_stages(trainer.model, "res3,res4")       # before trainer.train()

Names are loaded when they are used: only the hook and the trainer import Detectron2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oomproof.changes.detectron2.accumulating import accumulated_step
    from oomproof.changes.detectron2.stages import checkpoint_stages
    from oomproof.changes.detectron2.trainer import Accumulate, AccumulatingTrainer, accumulate
    from oomproof.changes.detectron2.weights import whole_batch

__all__ = ["Accumulate", "AccumulatingTrainer", "accumulate", "accumulated_step", "checkpoint_stages", "whole_batch"]

_HOME = {
    "Accumulate": "trainer",
    "AccumulatingTrainer": "trainer",
    "accumulate": "trainer",
    "accumulated_step": "accumulating",
    "checkpoint_stages": "stages",
    "whole_batch": "weights",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'oomproof.changes.detectron2' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"oomproof.changes.detectron2.{_HOME[name]}"), name)
