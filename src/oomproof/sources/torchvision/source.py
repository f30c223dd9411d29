"""``torchvision:NAME``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _open(opening: Opening) -> Job:
    from oomproof.sources.torchvision.job import open_torchvision

    return open_torchvision(opening.text.partition(":")[2])


SOURCE = Source(
    name="torchvision",
    forms=("torchvision:NAME",),
    about="a model of torchvision, trained as its reference scripts do",
    recognises=lambda text: text.startswith("torchvision:"),
    open=_open,
)
