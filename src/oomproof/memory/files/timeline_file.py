"""A Timeline in a file: written whole or not at all, and read without trusting a byte of it.

The file is a NumPy .npz (a zip of arrays) with a JSON header in the member ``header.json``. Loading checks the declared
sizes before it unpacks anything, unpickles nothing and checks every number, so that what comes out is a Timeline that
makes no later step fail, fill the memory or write control characters to a terminal.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.errors import DamagedFile, InputError
from oomproof.files.looking import is_file, say_why_no_file
from oomproof.files.regular import NotAFile, open_regular
from oomproof.files.replacing import new_content
from oomproof.memory.files.timeline_check import BLOCKS, CALLS, MARKS, SHAPE, Wrong, check_timeline, clean_value
from oomproof.memory.timeline import Calls, Ints, Timeline

FORMAT, VERSION = "oomproof timeline", 1
HEADER = "header.json"
COLUMNS = (*BLOCKS, *CALLS, *MARKS, SHAPE)

MAX_ROWS = 200_000
"""blocks of two steps; the largest that were traced had 60,000. Each is replayed several times, 40,000 a second"""
MAX_COLUMN = 8 * MAX_ROWS + 1024
MAX_HEADER = 16 << 20
MAX_FILE = MAX_HEADER + len(COLUMNS) * MAX_COLUMN
AGAIN = "make it again with `oomproof check ... --save`"
# What NumPy writes before a row of 64-bit integers. Nothing else is accepted, so nothing else need be parsed.
NPY = re.compile(rb"\x93NUMPY\x01\x00..\{'descr': '<i8', 'fortran_order': False, 'shape': \((\d{1,9}),\), \} *\n", re.S)


def save(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Writes the Timeline beside ``path`` first, then puts it in place: a reader never sees half a file."""
    if max(len(timeline.born), len(timeline.calls.tick)) > MAX_ROWS:
        raise InputError(f"cannot write {path}: the step has more than {MAX_ROWS:,} blocks, too many to be read again")
    try:
        with new_content(Path(path)) as file:
            _write(timeline, file)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or type(error).__name__}") from None


def load_timeline(path: str | os.PathLike[str]) -> Timeline:
    """Reads a Timeline; DamagedFile where the file is not one that ``save`` could have written."""
    file = Path(path)
    if not is_file(file):
        raise InputError(f"{say_why_no_file(file)}: expected a timeline saved with --save")
    try:
        if file.stat().st_size > MAX_FILE:
            raise Wrong(f"expected at most {MAX_FILE >> 20} MiB; found {file.stat().st_size >> 20} MiB")
        with open_regular(file) as content, zipfile.ZipFile(content) as archive:
            return check_timeline(*_read(archive))
    except Wrong as error:
        raise DamagedFile(f"{file.name}: {error}; {AGAIN}") from None
    except (PermissionError, NotAFile) as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError) as error:
        # What zipfile, zlib and json raise on bytes that are not what they claim to be.
        reason = " ".join(str(clean_value(str(error))).split())[:100] or type(error).__name__
        raise DamagedFile(f"{file.name}: expected a saved timeline; it is damaged ({reason}); {AGAIN}") from None


def _write(timeline: Timeline, file: Any) -> None:
    calls: Calls = timeline.calls
    header = {
        "format": FORMAT,
        "version": VERSION,
        "ticks": timeline.ticks,
        "owners": timeline.owners,
        "ops": timeline.ops,
        "specs": calls.specs,
        "shapes": timeline.shapes,
        "about": timeline.about.as_header(),
    }
    blocks = (timeline.born, timeline.died, timeline.bytes, timeline.kind, timeline.phase, timeline.owner, timeline.op)
    columns = (
        *blocks,
        calls.tick,
        calls.owner,
        calls.phase,
        calls.spec,
        timeline.mark_tick,
        timeline.mark_phase,
        timeline.shape,
    )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(HEADER, json.dumps(clean_value(header), ensure_ascii=False, default=str))
        for name, column in zip(COLUMNS, columns, strict=True):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.ascontiguousarray(column, dtype="<i8"), allow_pickle=False)


def _read(archive: zipfile.ZipFile) -> tuple[dict[str, Any], dict[str, Ints]]:
    members = archive.infolist()
    names = sorted(member.filename for member in members)
    columns = COLUMNS if f"{SHAPE}.npy" in names else COLUMNS[:-1]
    if names != sorted([HEADER, *(f"{name}.npy" for name in columns)]):
        raise Wrong(f"expected {HEADER} and {len(COLUMNS)} columns; found {len(names)} members that are not these")
    for member in members:
        limit = MAX_HEADER if member.filename == HEADER else MAX_COLUMN
        if member.file_size > limit:
            rows = "" if member.filename == HEADER else f", {MAX_ROWS} rows"
            raise Wrong(f"{member.filename}: expected at most {limit} bytes{rows}; it declares {member.file_size}")
        # bzip2 and LZMA can be made to take gigabytes before they give a byte.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
            raise Wrong(f"{member.filename}: expected it stored or deflated; found another method")
    header = json.loads(_content(archive, HEADER))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise Wrong(f"expected the format «{FORMAT}»; the header names another or none")
    if header.get("version") != VERSION:
        raise Wrong(f"expected version {VERSION}; found {header.get('version')!r:.20}, of another oomproof")
    return header, {name: _column(name, _content(archive, f"{name}.npy")) for name in columns}


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    """All of a member, of which no more than it declares is unpacked.

    ``ZipFile.read`` would unpack whatever the compressed data hold and cut it afterwards (seen in Python 3.11).
    """
    declared = archive.getinfo(name).file_size
    with archive.open(name) as member:
        content = member.read(declared + 1)
    if len(content) != declared:
        raise Wrong(f"{name}: expected {declared} bytes; found {len(content)}")
    return content


def _column(name: str, content: bytes) -> Ints:
    header = NPY.match(content)
    if header is None:
        raise Wrong(f"{name}: expected one row of 64-bit integers; found something else")
    rows, rest = int(header[1]), len(content) - header.end()
    if rest != 8 * rows:
        raise Wrong(f"{name}: expected {8 * rows} bytes of numbers; found {rest}")
    return np.frombuffer(content, dtype="<i8", offset=header.end()).astype(np.int64)
