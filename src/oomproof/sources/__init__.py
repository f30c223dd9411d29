"""Where jobs come from, one file per source. May import memory/ and trace/; frameworks only inside functions."""

from __future__ import annotations

from pathlib import Path

from oomproof.errors import InputError
from oomproof.sources.job import Job


def open_job(text: str) -> Job:
    """``torchvision:NAME``, ``FILE.py:FUNCTION``, a saved ``FILE.timeline``, or a memory snapshot ``FILE.pickle``."""
    source, _, rest = text.partition(":")
    if source == "torchvision":
        from oomproof.sources.torchvision import open_torchvision

        return open_torchvision(rest)
    path, colon, function = text.rpartition(":")
    if colon and path.endswith(".py"):
        from oomproof.sources.python_file import open_python

        return open_python(Path(path), function)
    if text.endswith(".py"):
        raise InputError(f"which function of {text} makes the job? Say {text}:FUNCTION (docs/jobs.md)")
    if text.endswith((".timeline", ".pickle", ".pkl")):
        from oomproof.sources.saved import open_saved

        return open_saved(Path(text))
    raise InputError(
        f"'{text}' is no job: expected torchvision:NAME, FILE.py:FUNCTION, a saved FILE.timeline, "
        "or a PyTorch memory snapshot FILE.pickle"
    )
