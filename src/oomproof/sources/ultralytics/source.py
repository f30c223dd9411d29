"""``ultralytics:NAME``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _open(opening: Opening) -> Job:
    from oomproof.sources.ultralytics.job import open_ultralytics

    return open_ultralytics(opening.text.partition(":")[2])


SOURCE = Source(
    name="Ultralytics",
    forms=("ultralytics:NAME",),
    about="a YOLO or RT-DETR of Ultralytics with its loss, AMP, EMA and nominal batch",
    recognises=lambda text: text.startswith("ultralytics:"),
    open=_open,
)
