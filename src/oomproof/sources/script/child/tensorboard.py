"""TensorBoard's log files, which it writes through TensorFlow's C++ code wherever TensorFlow is installed."""

from __future__ import annotations

import sys
from types import ModuleType


def write_without_tensorflow() -> None:
    """Lets TensorBoard write with Python's own files, which Kept leads elsewhere, and spares loading TensorFlow: it
    looks for this module of its own (tensorboard 2.20), which only some builds have."""
    name = "tensorboard.compat.notf"
    sys.modules[name] = ModuleType(name)
