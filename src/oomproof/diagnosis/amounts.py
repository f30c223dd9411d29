"""Amounts of memory as messages write them, as bytes and back.

>>> amount("1.50 GiB"), amount("3.00G"), amount("0 bytes"), amount("524288kB")
(1610612736, 3221225472, 0, 536870912)
>>> text(6367000000), text(41 << 20), text(130 << 40)
('5.93 GiB', '41 MiB', '130.00 TiB')
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from oomproof.diagnosis.patterns import Pattern

SIZE = r"(-?\d[\d.,]{0,24}\s{0,2}(?:[Bb]ytes|[KMGTPEkmgtpe]i?[Bb]?|B)(?![A-Za-z]))"
"""one amount with its unit, as a group for larger patterns"""

_PARTS = Pattern(r"\s*(-?\d[\d.,]*)\s*([A-Za-z]*)")
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
MOST = 1 << 70

_WIDTHS = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "qint8": 1,
    "quint8": 1,
    "pred": 1,
    "half": 2,
    "bfloat16": 2,
    "float16": 2,
    "int16": 2,
    "uint16": 2,
    "double": 8,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
    "complex128": 16,
    "object": 8,
}


def amount(written: str) -> int | None:
    """Bytes. kB, MB and GB count in powers of 1024, as PyTorch, TensorFlow and the kernel print them."""
    found = _PARTS.match(written)
    if found is None:
        return None
    try:
        number = float(found[1].replace(",", "").rstrip("."))
    except ValueError:
        return None
    unit = found[2].lower()
    power = 0 if unit in ("bytes", "byte") else _POWERS.get(unit[:1], 0)
    size = number * 1024.0**power
    return int(size) if abs(size) < MOST else MOST


def find_amount(pattern: Pattern, within: str) -> int | None:
    """The amount that the pattern's first filled group holds."""
    found = pattern.search(within)
    if found is None:
        return None
    return next((amount(group) for group in found.groups() if group), None)


def text(nbytes: int) -> str:
    """For people: GiB from one GiB on, MiB below; TiB and more where it is absurd."""
    for power, unit in ((60, "EiB"), (50, "PiB")):
        if abs(nbytes) >= 1 << power:
            return f"{nbytes / (1 << power):.2f} {unit}"
    if abs(nbytes) >= 1 << 40:
        return f"{nbytes / (1 << 40):.2f} TiB"
    if abs(nbytes) >= 1 << 30:
        return f"{nbytes / (1 << 30):.2f} GiB"
    if abs(nbytes) >= 1 << 20:
        return f"{nbytes / (1 << 20):.0f} MiB"
    if abs(nbytes) >= 1024:
        return f"{nbytes / 1024:.0f} KiB"
    return f"{nbytes} byte{'' if nbytes == 1 else 's'}"


def number(nbytes: int) -> str:
    """GiB without the unit, for sums."""
    return f"{nbytes / (1 << 30):.2f}"


def width(dtype: str) -> int:
    """Bytes of one value; 4 where the name says nothing else (float, int32)."""
    return _WIDTHS.get(dtype.lower().removeprefix("dt_").removeprefix("<class '").strip("<>"), 4)


def tensor(shape: Sequence[int], dtype: str) -> int:
    return min(math.prod(shape) * width(dtype), MOST)
