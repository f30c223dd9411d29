"""A ``pipeline.config`` of the TensorFlow Object Detection API: read and checked; its memory is not forecast yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oomproof.errors import InputError
from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job

_ENDINGS = (".config", ".pbtxt")


def _recognises(text: str) -> bool:
    if not text.endswith(_ENDINGS) or not Path(text).is_file():
        return False
    from oomproof.sources.tf_object_detection.config.config import recognise
    from oomproof.sources.tf_object_detection.config.text_file import read_text

    try:
        return recognise(read_text(Path(text)))
    except InputError:
        return False


def _open(opening: Opening) -> Job:
    """Every mistake in the file is told first; then what is not there yet."""
    from oomproof.sources.tf_object_detection.config.config import read_config

    dead = read_config(Path(opening.text)).dead_fields()
    count = "a field that does nothing" if len(dead) == 1 else f"{len(dead)} fields that do nothing"
    idle = f" It has {count}: {'; '.join(map(str, dead))}" if dead else ""
    raise InputError(
        f"{opening.text} is a pipeline.config that the Object Detection API would read, but this version of oomproof "
        f"does not forecast its training (docs/tf_object_detection.md says what it does with it).{idle}"
    )


SOURCE = Source(
    name="TensorFlow Object Detection API",
    forms=("a pipeline.config (checked, not yet forecast)",),
    about="mistakes in it and fields that do nothing are named",
    recognises=_recognises,
    open=_open,
)
