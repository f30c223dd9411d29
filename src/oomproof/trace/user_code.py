"""Failures of the user's own code, told with their line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oomproof.errors import JobError, OomproofError

_OWN = str(Path(__file__).resolve().parent.parent)


@contextmanager
def blaming_user_code() -> Iterator[None]:
    """An exception out of the user's code becomes a JobError that shows where it came from."""
    try:
        yield
    except OomproofError:
        raise
    except (Exception, SystemExit) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
        what = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        line = _user_line(error)
        raise JobError(f"the job raised {what}{f' at {line}' if line else ''}") from error


def _user_line(error: BaseException) -> str:
    """The innermost line of the traceback that belongs to neither oomproof nor a library."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {(error.text or '').strip()}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((_OWN, "<frozen"))
    ]
    theirs = [frame for frame in frames if not _is_library(frame.filename)]
    return "".join(f"{frame.filename}:{frame.lineno}: {frame.line}" for frame in theirs[-1:])


def _is_library(filename: str) -> bool:
    import sysconfig

    return "site-packages" in filename or filename.startswith(sysconfig.get_paths()["stdlib"])
