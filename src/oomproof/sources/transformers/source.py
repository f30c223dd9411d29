"""``transformers:NAME``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _open(opening: Opening) -> Job:
    from oomproof.sources.transformers.job import open_transformers

    return open_transformers(opening.text.partition(":")[2])


SOURCE = Source(
    name="transformers",
    forms=("transformers:NAME",),
    about="a model of Hugging Face by config (a local config.json too), trained as its Trainer does; no download",
    recognises=lambda text: text.startswith("transformers:"),
    open=_open,
)
