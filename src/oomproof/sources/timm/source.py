"""``timm:NAME``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _open(opening: Opening) -> Job:
    from oomproof.sources.timm.job import open_timm

    return open_timm(opening.text.partition(":")[2])


SOURCE = Source(
    name="timm",
    forms=("timm:NAME",),
    about="a model of timm, trained as its train.py does",
    recognises=lambda text: text.startswith("timm:"),
    open=_open,
)
