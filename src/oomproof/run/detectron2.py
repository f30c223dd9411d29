"""For training scripts: ``from oomproof.run.detectron2 import Accumulate``. The code is in changes/detectron2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomproof.changes import detectron2

if TYPE_CHECKING:
    from oomproof.changes.detectron2.accumulating import accumulated_step
    from oomproof.changes.detectron2.stages import checkpoint_stages
    from oomproof.changes.detectron2.trainer import Accumulate, AccumulatingTrainer, accumulate
    from oomproof.changes.detectron2.weights import whole_batch

__all__ = ["Accumulate", "AccumulatingTrainer", "accumulate", "accumulated_step", "checkpoint_stages", "whole_batch"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'oomproof.run.detectron2' has no attribute {name!r}")
    return getattr(detectron2, name)
