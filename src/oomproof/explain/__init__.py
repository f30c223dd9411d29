"""Why didn't it fit? A log becomes facts (one file per message family), facts become ranked causes, and a Diagnosis.

May import memory/ and errors; no framework, and NumPy only for snapshots, so that ``oomproof explain`` starts at once.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """``oomproof.explain`` is this folder and the public function: Python binds the folder's name when it is loaded."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from oomproof.explaining import explain

        return explain(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
