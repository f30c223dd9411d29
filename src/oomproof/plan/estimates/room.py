"""The room on a device, and how live blocks compare with what it must hold at worst."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oomproof.memory.forecast import Forecast
from oomproof.memory.make_forecast import Terms

PACKED, EASY, LOOSE = 0.97, 0.9, 0.75
"""part of the room that live blocks fill before fragments and workspaces get in the way: if every byte is fought for,
with ease, and at worst"""


def at_ease(forecast: Forecast) -> bool:
    """Fits without the allocator ever having to give cached blocks back."""
    return forecast.fits and forecast.excess <= 0


@dataclass(frozen=True)
class Room:
    """What a device leaves to live blocks, which are counted by the least estimate."""

    bytes: int
    """that the allocator may reserve"""
    outside: int
    """bytes around the allocator: the CUDA context"""
    margin: float
    """for all that no model covers"""
    packed: float
    """live bytes in a byte that is reserved"""

    @property
    def live(self) -> int:
        """Bytes that blocks may take together, fragments and all that is unknown apart."""
        return int(self.bytes * self.packed)

    @property
    def easy(self) -> bool:
        """Something is kept back, which may be fought for."""
        return self.packed < PACKED

    def pack_tight(self) -> Room:
        return replace(self, packed=PACKED)

    def grow(self, terms: Terms) -> Room:
        return replace(self, bytes=terms.room_at_worst)

    def on_device(self, peak: int) -> int:
        """About what nvidia-smi would show at worst, where ``peak`` bytes are live."""
        return self.outside + int(peak / self.packed * self.margin)


def find_room(forecast: Forecast, terms: Terms, live: int, *, expandable: bool) -> Room:
    """As the job's own forecast shows it; segments that may be made expandable leave few gaps, and where blocks come
    straight from the system there are none."""
    room, margin = terms.room_at_worst, terms.margin
    outside = forecast.on_device.high - forecast.reserved.high
    if not terms.caching:
        return Room(room, outside, margin, 1.0)
    packed = EASY if expandable else live * margin / max(1, forecast.reserved.high)
    return Room(room, outside, margin, min(PACKED, max(LOOSE, packed)))
