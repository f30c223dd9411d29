"""Smaller image sizes for a knob: the aspect is kept, and every side is one that networks take."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

SMALLEST = 0.4
"""of the present side; below it most objects of usual photographs are a few pixels wide"""
STEPS = 6
_DIVISORS = (32, 16, 14, 8)


def smaller_sizes(sides: Sequence[int], divisor: int) -> list[tuple[tuple[int, ...], float]]:
    """Sizes below the present one, the largest first, each with its factor on the shorter side.

    >>> smaller_sizes((800, 1333), 32)[:2]
    [((704, 1184), 0.88), ((640, 1056), 0.8)]
    >>> [size for size, _ in smaller_sizes((224,), 32)]
    [(192,), (160,), (128,), (96,)]
    """
    short = min(sides)
    found: dict[tuple[int, ...], float] = {}
    for step in range(1, STEPS + 1):
        wanted = short * (1 - (1 - SMALLEST) * step / STEPS)
        side = max(divisor, round(wanted / divisor) * divisor)
        factor = side / short
        size = tuple(
            side if each == short else max(divisor, round(each * factor / divisor) * divisor) for each in sides
        )
        if factor < 1 and max(size) < max(sides):
            found.setdefault(size, round(factor, 3))
    return list(found.items())


def likely_divisor(sides: Sequence[int]) -> int:
    """What a network may want its sides to be multiples of, judged by the size it is given now.

    >>> likely_divisor((800, 1333)), likely_divisor((518,)), likely_divisor((299, 299))
    (32, 14, 32)
    """
    return next((each for each in _DIVISORS if any(side % each == 0 for side in sides)), _DIVISORS[0])


def harm_of_size(factor: float) -> float:
    """The share of AP that smaller images cost, about: RetinaNet R-50 has 35.7 at 800 pixels, 34.3 at 600, 30.5 at 400
    (Lin et al. 2017, table 1e)."""
    return round(0.15 * -log2(factor), 3)
