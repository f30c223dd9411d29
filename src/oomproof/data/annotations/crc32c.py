"""CRC-32C (Castagnoli), which TFRecords are guarded with, at NumPy's speed.

A CRC takes byte after byte, which in Python would be a slow loop. Instead the data are cut into short pieces whose CRCs
are computed side by side, one NumPy operation for the same two bytes of all, and then joined two by two: the CRC is
linear, so that of two pieces is the first one's, moved on by the length of the second, xor the second one's.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78
PIECE = 64
"""bytes"""
MASK_DELTA = 0xA282EAD8
"""TensorFlow stores CRCs rotated and moved by this, since a CRC of data that hold CRCs is weak"""

Table = NDArray[np.uint32]


def crc32c(data: bytes | memoryview) -> int:
    """
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    whole = np.frombuffer(data, np.uint8)
    pieces = len(whole) // PIECE
    crc, done = np.uint32(0xFFFFFFFF), pieces * PIECE
    if pieces:
        # Only the first piece starts at the start value: what follows is joined to it.
        pairs = np.ascontiguousarray(whole[:done].view("<u2").reshape(pieces, PIECE // 2).T)
        crcs = np.zeros(pieces, np.uint32)
        crcs[0] = crc
        for pair in pairs:
            crcs = _PAIRS.take((crcs ^ pair) & np.uint32(0xFFFF)) ^ (crcs >> np.uint32(16))
        crc = _join(crcs)
    rest = int(crc)
    for byte in whole[done:].tolist():
        rest = _LIST[(rest ^ byte) & 0xFF] ^ (rest >> 8)
    return rest ^ 0xFFFFFFFF


def mask_crc32c(data: bytes | memoryview) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def _join(crcs: Table) -> np.uint32:
    """Of equal pieces, the CRC of them all. A piece of zeros before the first changes nothing and makes pairs even."""
    length = PIECE
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.concatenate([np.zeros(1, np.uint32), crcs])
        crcs = _move(crcs[::2], length) ^ crcs[1::2]
        length *= 2
    return np.uint32(crcs[0])


def _move(crcs: Table, length: int) -> Table:
    """CRCs after ``length`` more bytes of zero."""
    table = _shift_table(length)
    eight = np.uint32(8)
    return np.asarray(
        table[0][crcs & np.uint32(0xFF)]
        ^ table[1][(crcs >> eight) & np.uint32(0xFF)]
        ^ table[2][(crcs >> np.uint32(16)) & np.uint32(0xFF)]
        ^ table[3][crcs >> np.uint32(24)]
    )


@cache
def _shift_table(length: int) -> Table:
    """For each of the four bytes of a CRC and each value of it, what it becomes ``length`` bytes of zero later."""
    values = np.arange(256, dtype=np.uint32)
    table = np.stack([values << np.uint32(8 * byte) for byte in range(4)])
    if length == PIECE:
        for _ in range(PIECE):
            table = _BYTES[table & np.uint32(0xFF)] ^ (table >> np.uint32(8))
        return table
    return _move(_move(table, length // 2), length // 2)


def _bytes_table() -> Table:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & np.uint32(1), (table >> np.uint32(1)) ^ np.uint32(POLYNOMIAL), table >> np.uint32(1))
    return table.astype(np.uint32)


_BYTES = _bytes_table()
_PAIRS: Table = np.concatenate(
    [_BYTES[(_BYTES ^ high) & 0xFF] ^ (_BYTES >> 8) for high in np.arange(256, dtype=np.uint32)]
)
"""by two bytes, the second times 256"""
_LIST: list[int] = _BYTES.tolist()
