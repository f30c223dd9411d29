"""For training scripts: ``from oomproof.run.keras import apply, batches, Guard``. The code is in changes/keras and
run/guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomproof.changes.keras import apply, batches, slim

if TYPE_CHECKING:
    from oomproof.run.guard.keras_guard import Guard

__all__ = ["Guard", "apply", "batches", "slim"]


def __getattr__(name: str) -> Any:
    if name != "Guard":
        raise AttributeError(f"module 'oomproof.run.keras' has no attribute {name!r}")
    from oomproof.run.guard.keras_guard import Guard

    return Guard
