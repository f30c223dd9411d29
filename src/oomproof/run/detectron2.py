"""For training scripts: ``from oomproof.run.detectron2 import Accumulate``. The code is in changes/detectron2
and run/guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomproof.changes import detectron2

if TYPE_CHECKING:
    from oomproof.changes.detectron2.accumulating import accumulated_step
    from oomproof.changes.detectron2.stages import checkpoint_stages
    from oomproof.changes.detectron2.trainer import Accumulate, AccumulatingTrainer, accumulate
    from oomproof.changes.detectron2.weights import whole_batch
    from oomproof.run.guard.detectron2_hook import GuardHook
    from oomproof.run.guard.detectron2_step import guard_of, guarded_step

__all__ = [
    "Accumulate",
    "AccumulatingTrainer",
    "GuardHook",
    "accumulate",
    "accumulated_step",
    "checkpoint_stages",
    "guard_of",
    "guarded_step",
    "whole_batch",
]
_HERE = {"GuardHook": "detectron2_hook", "guard_of": "detectron2_step", "guarded_step": "detectron2_step"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'oomproof.run.detectron2' has no attribute {name!r}")
    if name in _HERE:
        from importlib import import_module

        return getattr(import_module(f"oomproof.run.guard.{_HERE[name]}"), name)
    return getattr(detectron2, name)
