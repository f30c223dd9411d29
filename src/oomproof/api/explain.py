"""Why didn't it fit? From a log to a Diagnosis.

>>> import oomproof
>>> oomproof.explain("train.log").cause                      # doctest: +SKIP
>>> oomproof.explain(["Epoch 1/50", "Killed"]).next          # doctest: +SKIP
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from oomproof.diagnosis.diagnose import diagnose
from oomproof.diagnosis.diagnosis import Diagnosis
from oomproof.diagnosis.gather import gather
from oomproof.diagnosis.reading import read
from oomproof.errors import InputError
from oomproof.files.pipes import open_log

if TYPE_CHECKING:
    from oomproof.memory.forecast import Forecast

__all__ = ["Diagnosis", "explain", "explain_stream"]

LONGEST_PATH = 4096
PICKLE = b"\x80"
GZIP = b"\x1f\x8b"


def explain(
    log: str | os.PathLike[str] | bytes | Iterable[str | bytes], *, forecast: Forecast | None = None
) -> Diagnosis:
    """What a log says about a training that ran out of memory, or did not.

    ``log``: a path, the text itself, its bytes, or its lines (text or bytes), such as the tail that a supervisor keeps
    or an open file. A text of one line that names a file is read as that file. ``forecast``, of ``oomproof.check``, is
    set against the log's numbers.
    """
    if isinstance(log, bytes):
        return explain_stream(io.BytesIO(log), forecast)
    if isinstance(log, str) and not _names_a_file(log):
        return explain_stream(io.BytesIO(log.encode("utf-8", "replace")), forecast)
    if isinstance(log, str | os.PathLike):
        return _file(Path(log), forecast)
    return explain_stream(io.BytesIO(b"\n".join(_line(each) for each in log)), forecast)


def explain_stream(stream: BinaryIO, forecast: Forecast | None = None, *, name: str = "the log") -> Diagnosis:
    """Reads to the end of the stream, in bounded memory."""
    _refuse_what_is_no_text(stream, name)
    facts = gather(read(stream))
    if forecast is None:
        return diagnose(facts)
    from oomproof.diagnosis.against_forecast import with_forecast

    return with_forecast(facts, forecast)


def _refuse_what_is_no_text(stream: BinaryIO, name: str) -> None:
    """Looks at how it begins, where that can be done without taking it away from the reader."""
    beginning = stream.peek(2)[:2] if isinstance(stream, io.BufferedReader) else b""
    if beginning == GZIP:
        raise InputError(f"{name} is compressed: expected text; try `zcat {name} | oomproof explain -`")
    if beginning.startswith(PICKLE):
        raise InputError(
            f"{name} is a memory snapshot that comes through a pipe: expected a file, as in `oomproof explain "
            "snapshot.pickle`"
        )


def _line(given: str | bytes) -> bytes:
    return (given if isinstance(given, bytes) else str(given).encode("utf-8", "replace")).rstrip(b"\n")


def _names_a_file(text: str) -> bool:
    if "\n" in text or "\0" in text or not 0 < len(text) <= LONGEST_PATH:
        return False
    try:
        return Path(text).exists()
    except OSError:
        return False


def _file(path: Path, forecast: Forecast | None) -> Diagnosis:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder: expected a log, as in `oomproof explain train.log`")
        with open_log(path) as stream:
            if stream.seekable() and stream.peek(1).startswith(PICKLE):
                if forecast is not None:
                    raise InputError(f"{path} is a memory snapshot: a forecast is set against a log; leave out --job")
                from oomproof.diagnosis.snapshot import explain_snapshot

                return explain_snapshot(path)
            return explain_stream(stream, forecast, name=str(path))
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: expected a log, or `-` for what is piped in") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a log, or `-` for what is piped in") from None
