"""What may change about the run around a TensorFlow step: how its allocator takes memory, and how much."""

from __future__ import annotations

from oomproof.memory.cards.devices import Device
from oomproof.memory.cards.tf_limits import MIB, largest_limit, limit
from oomproof.memory.lasting import context
from oomproof.memory.runtime import Runtime
from oomproof.sources.job import Knob, Option, Settings

WORTH = 64
"""MiB that another limit must bring"""


def tensorflow_knobs(settings: Settings, device: Device) -> tuple[Knob, ...]:
    return tuple(knob for knob in (_growth(settings), _limit(settings, device)) if knob is not None)


def _growth(settings: Settings) -> Knob | None:
    if not settings.get("memory_growth"):
        return None
    options = (Option(True, {"memory_growth": True}), Option(False, {"memory_growth": False}))
    why = "one region from the start: none is left half empty by growing"
    return Knob("memory_growth", options, "identical", why)


def _limit(settings: Settings, device: Device) -> Knob | None:
    """Beyond what TensorFlow takes by itself. A limit that the user has set is a wish, and stays."""
    if settings.get("memory_limit_mb") != 0:
        return None
    usual, most = limit(device, Runtime(), context(device).expected) // MIB, largest_limit(device)
    if most < usual + WORTH:
        return None
    # TensorFlow (2.21) does not take both: with a limit, memory growth is off.
    off = {"memory_growth": False} if settings.get("memory_growth") else {}
    left = device.budget // MIB - most
    note = f"{left} MiB stay for the CUDA context, cuDNN and cuBLAS, an estimate"
    options = (Option(0, {"memory_limit_mb": 0}), Option(most, {"memory_limit_mb": most, **off}, note=note))
    why = f"by itself TensorFlow takes {usual} MiB of this device, and leaves the rest to libraries"
    return Knob("memory_limit_mb", options, "identical", why)
