"""What XLA's compiler said, kept in the user's cache folder: the same step for the same GPU is not compiled twice.

``$XDG_CACHE_HOME/oomproof/xla`` (or ``~/.cache/...``) may be emptied at any time. Where it cannot be written or read,
or holds something else, the step is compiled as if nothing were there.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_KEPT = 256 << 20
"""bytes of all answers together; the ones that were not asked for the longest go first"""
_FORM = b"oomproof xla answer 1\n"
_LONGEST = 1 << 30
"""bytes of one plan; a file that claims more is not one of ours"""


def folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    # As the specification of these folders has it, a path that is not absolute counts for nothing.
    home = Path(given) if given and Path(given).is_absolute() else Path.home() / ".cache"
    return home / "oomproof" / "xla"


def recall(key: str) -> tuple[Mapping[str, Any], bytes] | None:
    """The facts and the compiler's plan that were kept under a key, or None."""
    try:
        path = folder() / key
        written = path.read_bytes()
        if not written.startswith(_FORM):
            return None
        facts, _, packed = written[len(_FORM) :].partition(b"\n")
        told = json.loads(facts)
        unpacking = zlib.decompressobj()
        plan = unpacking.decompress(packed, _LONGEST)
    except (OSError, RuntimeError, ValueError, zlib.error):  # RuntimeError: a user without a home
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # asked for: it is among the last to go
    return (told, plan) if isinstance(told, dict) and unpacking.eof else None


def keep_answer(key: str, facts: Mapping[str, Any], plan: bytes) -> None:
    """Writes an answer down, as a whole or not at all."""
    content = _FORM + json.dumps(facts).encode() + b"\n" + zlib.compress(plan, 1)
    try:
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".new-", dir=place)
        unfinished = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            unfinished.replace(place / key)
        except BaseException:
            unfinished.unlink()
            raise
        _drop_oldest(place)
    except (OSError, RuntimeError):  # a read-only home, a full disk: it will be compiled again
        return


def _drop_oldest(place: Path) -> None:
    found = sorted(((each.stat(), each) for each in place.iterdir()), key=lambda pair: -pair[0].st_mtime)
    total = 0
    for status, path in found:
        total += status.st_size
        if total > MOST_KEPT:
            path.unlink(missing_ok=True)
