"""``FILE.timeline`` and ``FILE.pickle``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _open(opening: Opening) -> Job:
    from oomproof.sources.saved.job import open_saved

    return open_saved(Path(opening.text))


SOURCE = Source(
    name="saved steps",
    forms=("FILE.timeline", "a PyTorch memory snapshot FILE.pickle"),
    about="a step that `check --save` kept, or what a real run recorded",
    recognises=lambda text: text.endswith((".timeline", ".pickle", ".pkl")),
    open=_open,
)
