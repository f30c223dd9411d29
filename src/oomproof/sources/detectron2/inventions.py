"""Keys that tutorials and forums name and Detectron2 does not have: what people mean by them, and what does it."""

from __future__ import annotations

import re

_ACCUMULATION = (
    "Detectron2 has no gradient accumulation; oomproof's trainer has (docs/detectron2.md), and `oomproof fit` plans it"
)
_RULES: tuple[tuple[str, str], ...] = ((r"^(SOLVER|TRAIN|MODEL)?\.?.*(ACCUM|GRAD_ACC)", _ACCUMULATION),)


def advice(key: str) -> str:
    """What to do instead of an invented key; empty where it is none that is known."""
    return next((text for pattern, text in _RULES if re.search(pattern, key, re.IGNORECASE)), "")
