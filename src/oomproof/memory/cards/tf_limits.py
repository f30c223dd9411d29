"""How much of a card TensorFlow lets its allocator take, and what a user should know about it."""

from __future__ import annotations

from oomproof.errors import InputError
from oomproof.memory.cards.devices import Device
from oomproof.memory.lasting import context as context_of
from oomproof.memory.runtime import Runtime

READ_BY = ("get_memory_info peak", "nvidia-smi less context")
"""what TensorFlow calls the bytes that its allocator has handed out, in tf.config.experimental.get_memory_info; those
that it holds it does not tell"""
MIB = 1 << 20
SMALL_CARD = 2 << 30
_LEFT_ON_SMALL = 225 * MIB
"""also what a limit set by hand must leave, beside the CUDA context at its largest: TensorFlow's own lowest figure"""
_LEFT = {6: 500 * MIB, 7: 1050 * MIB, 8: 1536 * MIB}
_LEFT_ON_NEWER = 1800 * MIB
_USUAL_CAPABILITY = 8
"""for a device known by its size alone"""


def leave_to_libraries(device: Device, context: int) -> int:
    """Bytes that TensorFlow leaves to cuDNN, cuBLAS and the driver; its allocator never takes them, whatever is free.

    MinSystemMemory of tensorflow/core/common_runtime/gpu/gpu_device.cc, by compute capability and by what is free when
    the context is there.
    """
    if device.budget - context < SMALL_CARD:
        return _LEFT_ON_SMALL
    major = device.capability[0] or _USUAL_CAPABILITY
    return next((left for most, left in _LEFT.items() if major <= most), _LEFT_ON_NEWER)


def largest_limit(device: Device) -> int:
    """The most that a limit set by hand may be, in MiB, so that the CUDA context and the libraries keep enough."""
    return max(0, device.budget - context_of(device).high - _LEFT_ON_SMALL) // MIB


def limit(device: Device, runtime: Runtime, context: int) -> int:
    """The most that the allocator may hold.

    A limit that is set by hand counts as it is: TensorFlow leaves nothing to libraries then, and does not look at what
    is free (BaseGPUDeviceFactory::CreateDevices of gpu_device.cc). Where that much is not there, the allocator takes a
    tenth less until it gets something, and the libraries find nothing: such a limit is refused.
    """
    usual = max(0, device.budget - context - leave_to_libraries(device, context))
    if not runtime.memory_limit_mb:
        return usual
    most = max(usual // MIB, largest_limit(device))
    if runtime.memory_limit_mb > most:
        raise InputError(
            f"memory_limit_mb={runtime.memory_limit_mb} leaves too little of {device.name} to the CUDA context, cuDNN "
            f"and cuBLAS; expected at most {most}, or 0 for what TensorFlow takes by itself ({usual // MIB})"
        )
    return runtime.memory_limit_mb * MIB


def notes(device: Device, runtime: Runtime, context: int) -> tuple[str, ...]:
    most = limit(device, runtime, context)
    usual = limit(device, Runtime(), context)
    if most > usual:
        return (
            f"memory_limit={runtime.memory_limit_mb} lets TensorFlow take {_gib(most)}, {_gib(most - usual)} more than "
            f"by itself: {_gib(device.budget - most)} stay for the CUDA context, cuDNN and cuBLAS, an estimate. Lower "
            "it should the training stop with «could not create cudnn handle»",
        )
    if runtime.memory_growth:
        return (f"memory growth is on: TensorFlow takes what it needs, up to {_gib(most)}, and gives nothing back",)
    return (
        f"without memory growth TensorFlow takes {_gib(most)} of the device when it starts, whatever the model needs: "
        "nvidia-smi then shows that, not the figure for reserved memory. "
        "tf.config.experimental.set_memory_growth(gpu, True) makes it take what it needs",
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
