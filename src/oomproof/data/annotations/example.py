"""tf.Example in protobuf's wire format, read without TensorFlow or protobuf.

    Example { Features features = 1 }     Features { map<string, Feature> feature = 1 }
    Feature { BytesList = 1 | FloatList = 2 | Int64List = 3 }, each with «repeated value = 1», packed or not

Every length is checked against what is there, and nothing is copied before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_FEATURES = 10_000
MOST_VALUES = 10_000_000


class NotAnExample(ValueError):
    """Says what is wrong with the bytes."""


def features(data: bytes) -> dict[str, memoryview]:
    """Every feature by its name, not yet read."""
    found: dict[str, memoryview] = {}
    for number, _, value in _fields(memoryview(data)):
        if number != 1 or not isinstance(value, memoryview):
            continue
        for inner, _, entry in _fields(value):
            if inner != 1 or not isinstance(entry, memoryview):
                continue
            if len(found) >= MOST_FEATURES:
                raise NotAnExample(f"more than {MOST_FEATURES:,} features")
            parts = {key: part for key, _, part in _fields(entry) if isinstance(part, memoryview)}
            found[bytes(parts.get(1, b"")[:256]).decode("utf-8", "replace")] = parts.get(2, memoryview(b""))
    return found


def texts(feature: memoryview | None) -> list[memoryview]:
    """The values of a bytes feature; none if it is another kind."""
    found: list[memoryview] = []
    for kind, _, value in _values(feature, 1):
        if kind == BYTES and isinstance(value, memoryview):
            found.append(value)
        if len(found) > MOST_VALUES:
            raise NotAnExample(f"more than {MOST_VALUES:,} values")
    return found


def floats(feature: memoryview | None) -> NDArray[np.float32]:
    parts: list[memoryview] = []
    for kind, _, value in _values(feature, 2):
        if isinstance(value, memoryview) and kind in (BYTES, FIXED32):
            parts.append(value)
    joined = b"".join(parts)
    if len(joined) % 4:
        raise NotAnExample("a list of floats that ends within one")
    return np.frombuffer(joined, "<f4")


def integers(feature: memoryview | None) -> list[int]:
    found: list[int] = []
    for kind, number, value in _values(feature, 3):
        if kind == VARINT:
            found.append(_to_signed(number))
        elif kind == BYTES and isinstance(value, memoryview):
            at = 0
            while at < len(value):
                plain, at = _varint(value, at)
                found.append(_to_signed(plain))
                if len(found) > MOST_VALUES:
                    raise NotAnExample(f"more than {MOST_VALUES:,} values")
    return found


def _values(feature: memoryview | None, kind: int) -> Iterator[tuple[int, int, memoryview | None]]:
    """Wire type, number and bytes of each value in the list of that kind."""
    for field, _, value in _fields(memoryview(b"") if feature is None else feature):
        if field == kind and isinstance(value, memoryview):
            for inner, wire, number, part in _walk(value):
                if inner == 1:
                    yield wire, number, part


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview | None]]:
    return ((field, number, part) for field, _, number, part in _walk(data))


def _walk(data: memoryview) -> Iterator[tuple[int, int, int, memoryview | None]]:
    """Field number, wire type, number (of a varint) and bytes (of the others) of each field of a message."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if field == 0:
            raise NotAnExample("a field without a number")
        if wire == VARINT:
            number, at = _varint(data, at)
            yield field, wire, number, None
            continue
        if wire == BYTES:
            length, at = _varint(data, at)
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
        else:
            raise NotAnExample(f"wire type {wire}, which no tf.Example has")
        if length > end - at:
            raise NotAnExample("a field is longer than what holds it")
        yield field, wire, 0, data[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (1 << 64) - 1, at
        shift += 7
    raise NotAnExample("a number without an end")


def _to_signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
