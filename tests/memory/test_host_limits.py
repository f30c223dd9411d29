"""Limits of the machine and of containers, as files of both kinds of cgroup say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomproof.errors import InputError
from oomproof.memory.cards.host_limits import find_ram_limit, find_shm_limit
from oomproof.memory.host_memory import ram_of, shm_of

GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 1 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_machine_without_containers(tmp_path: Path) -> None:
    assert find_ram_limit(machine(tmp_path, {})) == 64 * GIB
    with pytest.raises(InputError, match="give a size"):
        find_ram_limit(tmp_path / "nothing")


def test_cgroup_v2_counts_the_limits_above_it(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/jobs/train\n",
        "sys/fs/cgroup/jobs/train/memory.max": "max\n",
        "sys/fs/cgroup/jobs/memory.max": f"{8 * GIB}\n",
    }
    assert find_ram_limit(machine(tmp_path, files)) == 8 * GIB


def test_inside_a_container_the_mount_has_the_limit(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/docker/0123abc\n", "sys/fs/cgroup/memory.max": f"{4 * GIB}\n"}
    assert find_ram_limit(machine(tmp_path, files)) == 4 * GIB


def test_cgroup_v1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{16 * GIB}\n",
        "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert find_ram_limit(machine(tmp_path, files)) == 16 * GIB


def test_sizes_and_this_machine(tmp_path: Path) -> None:
    assert shm_of("64MiB") == 64 << 20
    assert shm_of("this") == find_shm_limit() > 0
    assert ram_of("this") == find_ram_limit() > 0
    with pytest.raises(InputError, match="this machine has no"):
        find_shm_limit(tmp_path / "nothing")
    with pytest.raises(InputError, match="shm must be a size with its unit"):
        shm_of("lots")
