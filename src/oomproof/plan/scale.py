"""How live blocks compare with what the device must hold at worst."""

from __future__ import annotations

from dataclasses import dataclass

from oomproof.memory.forecast import Forecast
from oomproof.memory.make_forecast import Terms

PACKED, EASY, LOOSE = 0.97, 0.9, 0.75
"""part of the room that live blocks fill before fragments and workspaces get in the way: if every byte is fought for,
with ease, and at worst"""


def at_ease(forecast: Forecast) -> bool:
    """Fits without the allocator ever having to give cached blocks back."""
    return forecast.fits and forecast.excess <= 0


@dataclass(frozen=True)
class Scale:
    """How live blocks, by the least estimate, compare with what the device must hold at worst."""

    room: int
    """bytes that the allocator may reserve"""
    outside: int
    """bytes around the allocator: the CUDA context"""
    margin: float
    """for all that no model covers"""
    packed: float
    """live bytes in a byte that is reserved"""


def scale_of(forecast: Forecast, terms: Terms, live: int, *, expandable: bool) -> Scale:
    """As the job's own forecast shows it; segments that may be made expandable leave few gaps, and where blocks come
    straight from the system there are none."""
    room, margin = terms.room_at_worst, terms.margin
    outside = forecast.on_device.high - forecast.reserved.high
    if not terms.caching:
        return Scale(room, outside, margin, 1.0)
    packed = EASY if expandable else live * margin / max(1, forecast.reserved.high)
    return Scale(room, outside, margin, min(PACKED, max(LOOSE, packed)))
