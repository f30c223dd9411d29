"""For training scripts: ``oomproof.transformers.Guard``. The code is in run/guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oomproof.run.guard.transformers_guard import Guard

__all__ = ["Guard"]


def __getattr__(name: str) -> Any:
    if name != "Guard":
        raise AttributeError(f"module 'oomproof.run.transformers' has no attribute {name!r}")
    from oomproof.run.guard.transformers_guard import Guard

    return Guard
