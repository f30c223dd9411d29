"""A ``pipeline.config`` of the TensorFlow Object Detection API, or a script that edits one through the API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oomproof.errors import InputError
from oomproof.files.looking import is_file
from oomproof.files.regular import read_regular
from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job

_ENDINGS = (".config", ".pbtxt")
_SCRIPT = ".py"


def _recognises(text: str) -> bool:
    if not text.endswith((*_ENDINGS, _SCRIPT)) or not is_file(text):
        return False
    if text.endswith(_SCRIPT):
        from oomproof.sources.tf_object_detection.script.job import edits_config

        return edits_config(Path(text))
    from oomproof.sources.tf_object_detection.config.config import recognise
    from oomproof.sources.tf_object_detection.config.text_file import read_text

    try:
        return recognise(read_text(Path(text)))
    except InputError:
        return _is_in_another_encoding(Path(text))


def _is_in_another_encoding(path: Path) -> bool:
    """Whether it would be a config, but for what it was saved as; opening it says so."""
    from oomproof.sources.tf_object_detection.config.config import recognise
    from oomproof.sources.tf_object_detection.config.text_file import MOST_BYTES

    try:
        content = read_regular(path, MOST_BYTES)
    except OSError:
        return False
    return recognise(content.replace(b"\0", b"").decode("latin-1"))  # of UTF-16, every second byte


def _open(opening: Opening) -> Job:
    """Every mistake in the file is told first."""
    if opening.text.endswith(_SCRIPT):
        from oomproof.sources.tf_object_detection.script.job import open_script

        return open_script(Path(opening.text), opening.given)
    from oomproof.sources.tf_object_detection.config.config import read_config
    from oomproof.sources.tf_object_detection.job import open_config

    return open_config(read_config(Path(opening.text)), opening.text)


SOURCE = Source(
    name="TensorFlow Object Detection API",
    forms=("a pipeline.config, or a script that edits one",),
    about="a training of the TensorFlow Object Detection API, traced by its own code where it is installed",
    recognises=_recognises,
    open=_open,
)
