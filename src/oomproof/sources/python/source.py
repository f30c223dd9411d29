"""``FILE.py:FUNCTION``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oomproof.errors import InputError
from oomproof.files.looking import is_file, say_why_no_file
from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _recognises(text: str) -> bool:
    path, colon, _ = text.rpartition(":")
    return text.endswith(".py") or (bool(colon) and path.endswith(".py"))


def _open(opening: Opening) -> Job:
    path, _, function = opening.text.rpartition(":")
    if not path.endswith(".py"):
        if not is_file(opening.text):
            why = say_why_no_file(opening.text)
            raise InputError(f"{why}: expected FILE.py:FUNCTION, or -- python FILE.py for a script (docs/jobs.md)")
        raise InputError(f"which function of {opening.text} makes the job? Say {opening.text}:FUNCTION (docs/jobs.md)")
    if opening.given.get("backend"):
        from oomproof.sources.keras.installed import use_backend

        use_backend(opening.given["backend"])
    from oomproof.sources.python.job import open_python

    return open_python(Path(path), function)


SOURCE = Source(
    name="Python",
    forms=("FILE.py:FUNCTION",),
    about="a function of yours that returns a TorchJob, a KerasJob or a compiled Keras model",
    recognises=_recognises,
    open=_open,
)
