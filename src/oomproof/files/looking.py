"""Whether something is there. ``Path.is_file()`` and its like raise PermissionError for what lies in a folder that the
user may not enter, and OSError for names that no file system has (before Python 3.14); these say no, and why."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_there(path: str | os.PathLike[str]) -> bool:
    return _mode(path) is not None


def is_file(path: str | os.PathLike[str]) -> bool:
    return stat.S_ISREG(_mode(path) or 0)


def is_folder(path: str | os.PathLike[str]) -> bool:
    return stat.S_ISDIR(_mode(path) or 0)


def say_why_no_file(path: str | os.PathLike[str]) -> str:
    """The beginning of an error's line, of a path that is no file."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return f"there is no file {path}{hint_at_home(path)}"
    except OSError as error:
        return f"cannot look at {path} ({error.strerror or type(error).__name__})"
    return f"{path} is not a file"


def hint_at_home(path: str | os.PathLike[str]) -> str:
    return " (a shell puts your home for ~ only where it begins a word without quotes)" if str(path)[:1] == "~" else ""


def _mode(path: str | os.PathLike[str]) -> int | None:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
