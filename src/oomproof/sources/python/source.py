"""``FILE.py:FUNCTION``."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from oomproof.errors import InputError
from oomproof.files.looking import is_file, say_why_no_file
from oomproof.sources.script.child.notebook import without_magics
from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _recognises(text: str) -> bool:
    path, colon, _ = text.rpartition(":")
    return text.endswith(".py") or (bool(colon) and path.endswith(".py"))


def _open(opening: Opening) -> Job:
    path, _, function = opening.text.rpartition(":")
    if not path.endswith(".py"):
        text = opening.text
        if not is_file(text):
            why = say_why_no_file(text)
            raise InputError(f"{why}: expected FILE.py:FUNCTION, or -- python FILE.py for a script (docs/jobs.md)")
        _require_python(Path(text))
        raise InputError(
            f"which function of {text} makes the job? Say {text}:FUNCTION, or -- python {text} for a training script "
            "(docs/jobs.md)"
        )
    if opening.given.get("backend"):
        from oomproof.sources.keras.installed import use_backend

        use_backend(opening.given["backend"])
    from oomproof.sources.python.job import open_python

    return open_python(Path(path), function)


def _require_python(file: Path) -> None:
    try:
        ast.parse(without_magics(file.read_bytes().decode("utf-8")), str(file))
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise InputError(f"{file}{line}: this is no Python that can be read: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError, OSError):  # what it is, whoever runs it is told
        return


SOURCE = Source(
    name="Python",
    forms=("FILE.py:FUNCTION",),
    about="a function of yours that returns a TorchJob, a KerasJob or a compiled Keras model",
    recognises=_recognises,
    open=_open,
)
