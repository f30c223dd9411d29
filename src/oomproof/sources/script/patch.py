"""A change of a script's files: shown as a diff, and put in place."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from oomproof.errors import InputError
from oomproof.files.replacing import replace_file


def show_patch(edited: Mapping[str, bytes]) -> str:
    """A unified diff, as ``patch -p0`` and people read it."""
    lines: list[str] = []
    for file, content in edited.items():
        shown = os.path.relpath(file)
        old = Path(file).read_bytes().decode(errors="replace").splitlines(keepends=True)
        new = content.decode(errors="replace").splitlines(keepends=True)
        lines += difflib.unified_diff(old, new, shown, shown, n=1)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def write_patch(edited: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
    """Replaces the files as a whole; what they were is kept beside them as ``.orig``."""
    for file, content in edited.items():
        try:
            replace_file(Path(file), content, expected=before[file])
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(f"{file} cannot be written: {reason}; apply the change by hand") from error
