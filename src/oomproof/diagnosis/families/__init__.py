"""The messages of memory failures: one file per family, each with a TRIGGER and ``read``, which makes a Failure.

A new format is a new file here and its name in FAMILIES. Earlier ones win where two know the same line.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from oomproof.diagnosis.families import (
    arrays,
    cluster,
    cpu,
    cuda,
    exits,
    handles,
    harmless,
    kernel,
    loader,
    mps,
    other_frameworks,
    tensorflow,
    xla,
)

FAMILIES: Sequence[ModuleType] = (
    harmless,
    mps,
    cuda,
    cpu,
    tensorflow,
    xla,
    handles,
    loader,
    kernel,
    cluster,
    arrays,
    other_frameworks,
    exits,
)
