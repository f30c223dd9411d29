"""How much of a card JAX lets its allocator take, and what a user should know about it."""

from __future__ import annotations

from oomproof.memory.cards.devices import Device
from oomproof.memory.runtime import Runtime

READ_BY = ("peak_bytes_in_use", "pool_bytes")
"""what JAX calls the bytes that its allocator has handed out, and those that it holds, in Device.memory_stats()"""
FRACTION = 0.75
"""of all memory that the device has, taken or not: XLA_PYTHON_CLIENT_MEM_FRACTION, by default"""
MIB = 1 << 20


def limit(device: Device, runtime: Runtime, context: int) -> int:
    """The most that the allocator may hold, whether it takes it at once or as it is needed (CreateBFCAllocator of
    xla/pjrt/gpu/gpu_helpers.cc)."""
    free = max(0, device.budget - context)
    wanted = runtime.memory_limit_mb * MIB if runtime.memory_limit_mb else int(FRACTION * device.total)
    return min(free, wanted)


def notes(device: Device, runtime: Runtime, context: int) -> tuple[str, ...]:
    most = limit(device, runtime, context)
    part = most / device.total
    if runtime.memory_growth:
        return (
            f"XLA_PYTHON_CLIENT_PREALLOCATE=false: JAX takes what it needs, up to {_gib(most)} ({part:.0%} of the "
            "device; XLA_PYTHON_CLIENT_MEM_FRACTION changes that), and gives nothing back",
        )
    return (
        f"JAX takes {_gib(most)} ({part:.0%} of the device) when it starts, whatever the model needs: nvidia-smi then "
        "shows that, and a step that needs more fails. XLA_PYTHON_CLIENT_MEM_FRACTION=.95 lets it take more",
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
