"""The folder that checkpoints go to: looked at before anything takes long, and what fails there said in a line."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oomproof.errors import InputError, JobError
from oomproof.files.looking import is_folder, is_there

_REASON = re.compile(r"; ([^;\[\n]+)")
"""in TensorFlow's errors, behind the file: "out/ckpt-3_temp/part-0; No space left on device [Op:SaveV2]"."""


def require_writable(folder: Path) -> None:
    """InputError where the folder is none, or could not be made or written to."""
    place = next((each for each in (folder, *folder.parents) if is_there(each)), Path())
    if not is_folder(place):
        raise InputError(f"--model-dir {folder}: {place} is a file; expected a folder, or the path of a new one")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"--model-dir {folder}: {place} cannot be written to; check its rights, or give another")


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--model-dir {folder} cannot be made: {error.strerror}") from None


@contextlib.contextmanager
def failing_in_a_line(tf: Any, what: str, then: str) -> Iterator[None]:
    """``what`` cannot be written, and ``then`` is what to do."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise JobError(f"{what} cannot be written: {find_reason(error)}; {then}") from None


def find_reason(error: BaseException) -> str:
    """Why a file could not be written, without all that TensorFlow says around it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    found = _REASON.search(str(error))
    return found[1].strip() if found else (str(error).strip() or type(error).__name__).splitlines()[0][:200]
