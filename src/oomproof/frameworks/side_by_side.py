"""PyTorch and TensorFlow in one process. Whoever loads one of them for a job asks here first.

Triton, which PyTorch loads when it compiles or looks whether it could, and TensorFlow both bring LLVM. A process that
loads Triton after TensorFlow crashes without a word (triton 3.8, tensorflow 2.21); the other way round works.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec


def before_tensorflow() -> None:
    """Loads Triton where it is installed, which takes a third of a second; else it would be loaded too late."""
    if "tensorflow" in sys.modules or "triton" in sys.modules or find_spec("triton") is None:
        return
    # A Triton that does not load by itself is not loaded later either.
    with suppress(ImportError, OSError):
        import_module("triton")


def before_torch() -> None:
    """Where TensorFlow was loaded without Triton, says that there is none: PyTorch then goes on without it."""
    if "tensorflow" in sys.modules:
        # None makes `import triton` raise ModuleNotFoundError, which PyTorch is prepared for.
        sys.modules.setdefault("triton", None)  # type: ignore[arg-type]  # typeshed knows modules alone
