"""The size of an image from the first bytes of its file. Nothing is decoded, so a hostile image costs nothing.

Formats: JPEG (ITU-T T.81, EXIF 2.3 for the orientation), PNG, GIF, BMP and WebP (RFC 9649).
"""

from __future__ import annotations

import io
import struct
from typing import BinaryIO, NamedTuple

LARGEST_SIDE = 1 << 20
"""pixels; a guess: the largest microscope slides have a quarter of it"""
MOST_SEGMENTS = 2048
"""of a JPEG before its size; colour profiles of some MiB have a hundred"""
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp")


class Header(NamedTuple):
    width: int
    height: int
    turned: bool = False
    """EXIF asks to show it on its side"""


def read_header(file: BinaryIO) -> Header | None:
    """The size of the image that begins here; none if it is another format, cut short, or of no believable size.

    >>> read_header(io.BytesIO(b"GIF89a" + bytes([64, 1, 240, 0])))
    Header(width=320, height=240, turned=False)
    """
    start = file.read(32)
    found = None
    if start.startswith(b"\xff\xd8"):
        file.seek(2 - len(start), io.SEEK_CUR)
        found = _jpeg(file)
    elif start.startswith(b"\x89PNG\r\n\x1a\n") and start[12:16] == b"IHDR" and len(start) >= 24:
        found = Header(*struct.unpack(">II", start[16:24]))
    elif start[:6] in (b"GIF87a", b"GIF89a") and len(start) >= 10:
        found = Header(*struct.unpack("<HH", start[6:10]))
    elif start.startswith(b"BM") and len(start) >= 26:
        found = _bmp(start)
    elif start.startswith(b"RIFF") and start[8:12] == b"WEBP" and len(start) >= 30:
        found = _webp(start)
    return found if found and is_believable(found.width, found.height) else None


def is_believable(width: int, height: int) -> bool:
    return 0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE


def _bmp(start: bytes) -> Header:
    if struct.unpack("<I", start[14:18])[0] == 12:  # OS/2's header has 16 bits a side
        return Header(*struct.unpack("<HH", start[18:22]))
    width, height = struct.unpack("<ii", start[18:26])
    return Header(width, abs(height))  # negative: rows from top to bottom


def _webp(start: bytes) -> Header | None:
    kind = start[12:16]
    if kind == b"VP8X":
        return Header(int.from_bytes(start[24:27], "little") + 1, int.from_bytes(start[27:30], "little") + 1)
    if kind == b"VP8L" and start[20] == 0x2F:
        bits = int.from_bytes(start[21:25], "little")
        return Header((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and start[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", start[26:30])
        return Header(width & 0x3FFF, height & 0x3FFF)
    return None


def _jpeg(file: BinaryIO) -> Header | None:
    turned = False
    for _ in range(MOST_SEGMENTS):
        mark = file.read(2)
        if len(mark) < 2 or mark[0] != 0xFF:
            return None
        kind = mark[1]
        if kind == 0xFF:  # bytes that fill may stand before a marker
            file.seek(-1, io.SEEK_CUR)
            continue
        if kind == 0x01 or 0xD0 <= kind <= 0xD7:  # markers that stand alone
            continue
        length = int.from_bytes(file.read(2), "big")
        if length < 2 or kind in (0xD8, 0xD9, 0xDA):  # the image data begin before a size was given
            return None
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            frame = file.read(5)
            height, width = struct.unpack(">HH", frame[1:]) if len(frame) == 5 else (0, 0)
            return Header(width, height, turned)
        if kind == 0xE1 and not turned:
            turned = _is_turned(file.read(length - 2))
        else:
            file.seek(length - 2, io.SEEK_CUR)
    return None


def _is_turned(segment: bytes) -> bool:
    """Orientations 5 to 8 change width and height."""
    if not segment.startswith(b"Exif\0\0") or segment[6:8] not in (b"II", b"MM"):
        return False
    tiff, order = segment[6:], "<" if segment[6:8] == b"II" else ">"
    if len(tiff) < 8:
        return False
    at = struct.unpack(f"{order}I", tiff[4:8])[0]
    count = struct.unpack(f"{order}H", tiff[at : at + 2])[0] if at + 2 <= len(tiff) else 0
    for entry in range(at + 2, min(at + 2 + 12 * count, len(tiff) - 11), 12):
        tag, _, _, value = struct.unpack(f"{order}HHIH", tiff[entry : entry + 10])
        if tag == 0x0112:
            return bool(5 <= value <= 8)
    return False
