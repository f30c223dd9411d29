"""For training scripts: ``from oomproof.run.keras import apply, batches``. The code is in changes/keras."""

from oomproof.changes.keras import apply, batches, slim

__all__ = ["apply", "batches", "slim"]
