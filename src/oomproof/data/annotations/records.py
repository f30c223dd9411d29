"""The records of a TFRecord file: length, its checksum, bytes, their checksum; nothing is believed unchecked."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

from oomproof.data.annotations.crc32c import mask_crc32c

LARGEST = 1 << 30
"""bytes of a record; a tf.Example has less than 2 GiB, and one of an image some MiB"""


class DamagedRecord(ValueError):
    """The rest of the file cannot be read: where records begin is not known any more."""


def records(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Where each record begins, and its bytes; none where they do not match their checksum, or are too many."""
    size = os.fstat(file.fileno()).st_size
    at = 0
    while at < size:
        head = file.read(12)
        if len(head) < 12:
            raise DamagedRecord(f"byte {at:,}: the file ends within a record")
        length, of_length = struct.unpack("<QI", head)
        if mask_crc32c(head[:8]) != of_length:
            raise DamagedRecord(f"byte {at:,}: the length of a record does not match its checksum")
        if at + length + 16 > size:
            raise DamagedRecord(f"byte {at:,}: a record of {length:,} bytes, of which {size - at - 12:,} are there")
        yield at, _read_checked(file, length)
        at += length + 16


def _read_checked(file: BinaryIO, length: int) -> bytes | None:
    if length > LARGEST:
        file.seek(length + 4, os.SEEK_CUR)
        return None
    data, tail = file.read(length), file.read(4)
    matches = len(tail) == 4 and mask_crc32c(data) == int.from_bytes(tail, "little")
    return data if matches else None
