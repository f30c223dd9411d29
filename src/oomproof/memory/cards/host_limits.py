"""What this machine, or the container around the process, lets a training take of its RAM and of /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from oomproof.errors import InputError

UNLIMITED = 1 << 60
"""cgroup v1 says a number above this where there is no limit"""


def find_ram_limit(root: Path = Path("/")) -> int:
    """Bytes: the least of the machine's RAM and the limits of the process's cgroup and those above it."""
    limits = [*_cgroup_limits(root), *_total(root)]
    if not limits:
        raise InputError("this machine does not say how much RAM it has: give a size, such as --ram 16GiB")
    return min(limits)


def find_shm_limit(place: Path = Path("/dev/shm")) -> int:
    """Bytes that /dev/shm can hold; Docker gives a container 64 MiB unless --shm-size says more."""
    try:
        facts = os.statvfs(place)
    except OSError:
        raise InputError(f"this machine has no {place}: give a size, such as --shm 64MiB") from None
    return facts.f_blocks * facts.f_frsize


def _total(root: Path) -> Iterator[int]:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            yield int(rest.split()[0]) * 1024


def _cgroup_limits(root: Path) -> Iterator[int]:
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, place = line.split(":", 2)
        if not controllers:
            folder, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # Inside a container the path may be the host's, of which the container sees the end: the mount itself.
        inner = Path(place.lstrip("/"))
        for each in (inner, *inner.parents):
            text = _read(folder / each / name).strip()
            if text.isdecimal() and int(text) < UNLIMITED:
                yield int(text)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
