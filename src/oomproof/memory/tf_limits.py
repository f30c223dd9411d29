"""How much of a card TensorFlow lets its allocator take, and what a user should know about it."""

from __future__ import annotations

from oomproof.memory.devices import Device
from oomproof.memory.runtime import Runtime

READ_BY = ("get_memory_info peak", "nvidia-smi less context")
"""what TensorFlow calls the bytes that its allocator has handed out, in tf.config.experimental.get_memory_info; those
that it holds it does not tell"""
MIB = 1 << 20
SMALL_CARD = 2 << 30
_LEFT_ON_SMALL = 225 * MIB
_LEFT = {6: 500 * MIB, 7: 1050 * MIB, 8: 1536 * MIB}
_LEFT_ON_NEWER = 1800 * MIB
_USUAL_CAPABILITY = 8
"""for a device known by its size alone"""


def left_to_libraries(device: Device, context: int) -> int:
    """Bytes that TensorFlow leaves to cuDNN, cuBLAS and the driver; its allocator never takes them, whatever is free.

    MinSystemMemory of tensorflow/core/common_runtime/gpu/gpu_device.cc, by compute capability and by what is free when
    the context is there.
    """
    if device.budget - context < SMALL_CARD:
        return _LEFT_ON_SMALL
    major = device.capability[0] or _USUAL_CAPABILITY
    return next((left for most, left in _LEFT.items() if major <= most), _LEFT_ON_NEWER)


def limit(device: Device, runtime: Runtime, context: int) -> int:
    """The most that the allocator may hold."""
    free = max(0, device.budget - context - left_to_libraries(device, context))
    return min(free, runtime.memory_limit_mb * MIB) if runtime.memory_limit_mb else free


def notes(device: Device, runtime: Runtime, context: int) -> tuple[str, ...]:
    most = limit(device, runtime, context)
    if runtime.memory_growth:
        return (f"memory growth is on: TensorFlow takes what it needs, up to {_gib(most)}, and gives nothing back",)
    return (
        f"without memory growth TensorFlow takes {_gib(most)} of the device when it starts, whatever the model needs: "
        "nvidia-smi then shows that, not the figure for reserved memory. "
        "tf.config.experimental.set_memory_growth(gpu, True) makes it take what it needs",
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
