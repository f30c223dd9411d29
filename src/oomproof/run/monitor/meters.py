"""What is read: host memory of a process and its children, /dev/shm, and the device."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

SHM = Path("/dev/shm")
_COUNTED = ("Pss_Anon", "Pss_Shmem", "SwapPss")
"""of /proc/PID/smaps_rollup: what was moved to swap is held all the same"""


def host_bytes(pid: int | None = None) -> int:
    """Memory of a process and all its children."""
    return sum(own_and_children_bytes(pid))


def own_and_children_bytes(pid: int | None = None) -> tuple[int, int]:
    """Memory of a process, and of all its children. Shared pages count once over all who share them (PSS), where the
    system tells; loader workers share most of theirs. Pages of files, such as libraries, do not count: the system takes
    them back at will, and a stranger that maps the same library changes everybody's share of it."""
    import psutil

    try:
        process = psutil.Process(pid)
        children = process.children(recursive=True)
    except psutil.Error:
        return 0, 0
    return _process_bytes(process), sum(_process_bytes(each) for each in children)


def tells_shares(pid: int) -> bool:
    """Whether the system tells this process's share of pages, which it does to its owner alone."""
    try:
        return "Pss_Anon" in Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return False


def _process_bytes(process: Any) -> int:
    import psutil

    if sys.platform.startswith("linux"):
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            told = {line.partition(":")[0]: line.split() for line in lines}
            if "Pss_Anon" in told:  # Linux 5.4 or newer
                return sum(int(told[name][1]) for name in _COUNTED if name in told) << 10
        except OSError:
            pass  # gone, or another user's
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def shm_bytes() -> int:
    """What is held in /dev/shm, by anybody."""
    try:
        return shutil.disk_usage(SHM).used
    except OSError:
        return 0


def device_bytes(pid: int | None = None) -> int:
    """What a process and its children hold on all GPUs, as the driver tells; 0 without one."""
    try:
        import psutil
        import pynvml as nvml
    except ImportError:
        return 0
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver: nothing to read
        return 0
    try:
        own = {pid or os.getpid()}
        own |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        return sum(
            process.usedGpuMemory or 0
            for place in range(nvml.nvmlDeviceGetCount())
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(place))
            if process.pid in own
        )
    except (nvml.NVMLError, psutil.Error):
        return 0
    finally:
        nvml.nvmlShutdown()
