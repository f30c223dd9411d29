"""The NVIDIA GPUs of this machine, as their driver tells through NVML."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from oomproof.errors import InputError


@dataclass(frozen=True)
class Gpu:
    name: str
    total: int
    """bytes, without what the driver keeps for itself where it tells that"""
    held: int
    """bytes that are in use now, this process apart"""
    held_by: tuple[str, ...]
    """the processes that hold them, as far as the driver tells"""
    capability: tuple[int, int]


def gpus() -> list[Gpu]:
    """All of them, in nvidia-smi's order."""
    try:
        import pynvml as nvml
    except ImportError:
        raise InputError("`this` needs the package nvidia-ml-py; install it, or name a GPU or a size") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InputError(
            f"no NVIDIA driver answers on this machine ({error}); "
            "name a GPU or a size instead, such as 'RTX 3060' or 8GiB"
        ) from None
    try:
        found = [_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        raise InputError(f"the NVIDIA driver failed ({error}); name a GPU or a size instead of `this`") from None
    finally:
        nvml.nvmlShutdown()
    if not found:
        raise InputError("the NVIDIA driver sees no GPU on this machine; name a GPU or a size instead of `this`")
    return found


def short_name(name: str) -> str:
    """A GPU's name as people say it, of the driver's or PyTorch's."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def own_device_bytes() -> int:
    """What the driver counts for this process on all GPUs; 0 where it does not tell."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except ImportError:
        return 0
    except nvml.NVMLError:
        return 0
    try:
        places = range(nvml.nvmlDeviceGetCount())
        return sum(_processes(nvml, nvml.nvmlDeviceGetHandleByIndex(i)).get(os.getpid(), 0) for i in places)
    except nvml.NVMLError:
        return 0
    finally:
        nvml.nvmlShutdown()


def driver_version() -> str:
    """Empty where no driver answers."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except ImportError:
        return ""
    except nvml.NVMLError:
        return ""
    try:
        version = nvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)
    except nvml.NVMLError:
        return ""
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any) -> Gpu:
    name = nvml.nvmlDeviceGetName(handle)
    total, used = _memory(nvml, handle)
    others, own = [], 0
    for pid, size in _processes(nvml, handle).items():
        if pid == os.getpid():
            own = size
        else:
            others.append((size, pid))
    return Gpu(
        name=short_name(name.decode() if isinstance(name, bytes) else str(name)),  # bytes before nvidia-ml-py 11.5
        total=total,
        held=max(0, used - own),
        held_by=tuple(_describe_process(pid, size) for size, pid in sorted(others, reverse=True)),
        capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
    )


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """(total, used) bytes. Old drivers count what they keep for themselves as used; newer ones tell it apart."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.used)
    return int(memory.total) - int(memory.reserved), int(memory.used)


def _processes(nvml: Any, handle: Any) -> dict[int, int]:
    """pid -> bytes; 0 where the driver does not tell, as on Windows."""
    sizes: dict[int, int] = {}
    for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        try:
            running = ask(handle)
        except nvml.NVMLError:
            continue
        for process in running:
            sizes[process.pid] = max(sizes.get(process.pid, 0), process.usedGpuMemory or 0)
    return sizes


def _describe_process(pid: int, size: int) -> str:
    import psutil

    try:
        name = psutil.Process(pid).name()
    except psutil.Error:
        name = "process"
    return f"{name} (pid {pid}) {size / 2**30:.2f} GiB" if size else f"{name} (pid {pid})"
