"""``-- python train.py ...``, or the same as one text; ``notebook.ipynb``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomproof.sources.script.command import is_command, read_command
from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _open(opening: Opening) -> Job:
    from oomproof.sources.script.job import ScriptJob

    return ScriptJob(read_command(opening.text))


SOURCE = Source(
    name="scripts",
    forms=("-- python train.py ...", "FILE.ipynb"),
    about="your own training script with its own arguments, stopped after its second step",
    recognises=is_command,
    open=_open,
)
