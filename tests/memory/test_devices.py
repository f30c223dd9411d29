"""Devices: names as people write them, sizes with units, and the GPU of this machine through NVML."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.errors import InputError
from oomproof.memory.cards import devices
from oomproof.memory.cards.device_table import ROWS
from oomproof.memory.cards.devices import Device, find_device, is_estimated, list_devices

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rtx 3060 12gb", "RTX 3060 12GB"),
        ("RTX3060-12GB", "RTX 3060 12GB"),
        ("3060-12", "RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("3090ti", "RTX 3090 Ti"),
        ("4090", "RTX 4090"),
        ("4090 laptop", "RTX 4090 Laptop"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop"),
        ("rtx 4070 mobile", "RTX 4070 Laptop"),
        ("A100-80GB", "A100 80GB"),
        ("a100 80", "A100 80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("A100-PCIE-40GB", "A100 40GB"),
        ("Tesla V100-SXM2-32GB", "Tesla V100 32GB"),
        ("T4", "Tesla T4"),
        ("t4 16GB", "Tesla T4"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("h100 pcie", "H100 PCIe"),
        ("RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("rtx 6000", "Quadro RTX 6000"),
        ("A6000", "RTX A6000"),
        ("titan rtx", "TITAN RTX"),
        ("GTX 1070 with Max-Q Design", "GTX 1070"),
    ],
)
def test_names_as_people_write_them(text: str, name: str) -> None:
    assert find_device(text).name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a100", "A100 40GB"),
        ("4060 Ti", "RTX 4060 Ti 8GB"),
        ("v100", "Tesla V100 16GB"),
        ("RTX 3060", "RTX 3060 12GB"),
        ("gtx 1060", "GTX 1060 6GB"),
    ],
)
def test_of_two_sizes_the_usual_one_and_it_says_so(text: str, name: str) -> None:
    assert find_device(text).name == name


def test_a_size_that_is_not_made() -> None:
    with pytest.raises(InputError, match="RTX 3060 comes with 12 GB or 8 GB; 16 GB was asked for"):
        find_device("RTX 3060 16GB")


def test_known_figures() -> None:
    device = find_device("RTX 3060 12GB")
    assert device.total == 12622168064
    assert (device.architecture, device.capability) == ("ampere", (8, 6))
    assert (device.tflops, device.half_tflops, device.bandwidth) == (12.7, 25.5, 360)
    assert device.budget == device.total
    assert round(find_device("RTX 5090").total / GIB, 2) == 31.35


@pytest.mark.parametrize("device", list_devices(), ids=lambda device: device.name)
def test_every_row(device: Device) -> None:
    assert find_device(device.name) == device
    assert find_device(f"NVIDIA {device.name.lower().replace(' ', '-')}") == device
    assert device.architecture
    assert device.tflops <= device.half_tflops
    assert device.bandwidth > 50


def test_the_table_as_a_whole() -> None:
    assert len(list_devices()) >= 60
    assert len({device.name for device in list_devices()}) == len(list_devices())
    for row in ROWS:
        # The driver never keeps more than a tenth, and CUDA never reports more than the box says.
        assert 0.88 * row.gigabytes < row.total <= row.gigabytes, row
    assert is_estimated(find_device("RTX 4060 Laptop"))
    assert not is_estimated(find_device("RTX 3060 12GB"))
    assert not is_estimated(find_device("8GiB"))


@pytest.mark.parametrize(
    ("text", "total", "name"),
    [
        ("8GiB", 8 * GIB, "8.00 GiB"),
        ("8g", 8 * GIB, "8.00 GiB"),
        ("8 G", 8 * GIB, "8.00 GiB"),
        ("7.5GB", 7_500_000_000, "6.98 GiB"),
        ("8192MiB", 8 * GIB, "8.00 GiB"),
        ("8000 mb", 8_000_000_000, "7.45 GiB"),
        ("1TiB", 1024 * GIB, "1024.00 GiB"),
        (".5GiB", GIB // 2, "0.50 GiB"),
        ("1e10 bytes", 10**10, "9.31 GiB"),
    ],
)
def test_sizes(text: str, total: int, name: str) -> None:
    device = find_device(text)
    assert (device.total, device.name, device.architecture) == (total, name, "")


@pytest.mark.parametrize("text", ["0GiB", "-8GiB", "63MiB", "11TiB", "nanGiB", "inf GB", "1e400GB"])
def test_sizes_that_cannot_be(text: str) -> None:
    with pytest.raises(InputError, match="expected a size from 64 MiB to 10 TiB"):
        find_device(text)


def test_a_number_alone_asks_for_a_unit() -> None:
    with pytest.raises(InputError, match="a size needs a unit"):
        find_device("8192")


def test_a_near_miss_names_what_is_near() -> None:
    with pytest.raises(InputError, match=r"RTX 3090.*oomproof gpus"):
        find_device("RTX 3090 Tie")
    with pytest.raises(InputError, match="like RTX 30"):
        find_device("3061")


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=40), st.from_regex(r"[0-9a-z. _+-]{0,12}", fullmatch=True)))
def test_any_text_is_a_device_or_one_line(text: str) -> None:
    if text.strip().lower().startswith("this"):
        return
    try:
        device = find_device(text)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert 64 << 20 <= device.total <= 10 << 40


def test_docstring() -> None:
    assert doctest.testmod(devices).failed == 0


def test_no_driver_here_is_one_clear_line() -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(InputError, match="no NVIDIA driver answers on this machine"):
            find_device("this")
    else:
        pynvml.nvmlShutdown()
        assert find_device("this").total > 0


class FakeError(Exception):
    pass


def fake_nvml(*gpus: SimpleNamespace, reserved: bool = True) -> ModuleType:
    """What nvidia-ml-py answers on a machine with these GPUs; there is no driver where tests run."""
    nvml = ModuleType("pynvml")

    def memory(gpu: SimpleNamespace, version: int | None = None) -> SimpleNamespace:
        if version is None:
            return SimpleNamespace(total=gpu.total, used=gpu.used + gpu.reserved)
        if not reserved:
            raise FakeError("Function Not Found")
        return SimpleNamespace(total=gpu.total, used=gpu.used, reserved=gpu.reserved)

    def no_graphics(gpu: SimpleNamespace) -> list[SimpleNamespace]:
        raise FakeError("Not Supported")

    nvml.__dict__.update(
        NVMLError=FakeError,
        nvmlMemory_v2=2,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: gpus[index],
        nvmlDeviceGetName=lambda gpu: gpu.name,
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetComputeRunningProcesses=lambda gpu: gpu.processes,
        nvmlDeviceGetGraphicsRunningProcesses=no_graphics,
        nvmlDeviceGetCudaComputeCapability=lambda gpu: (8, 6),
    )
    return nvml


def gpu(name: str, total: int, used: int, *processes: tuple[int, int | None]) -> SimpleNamespace:
    running = [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in processes]
    return SimpleNamespace(name=name, total=total * GIB, used=used * GIB, reserved=GIB // 4, processes=running)


def test_this_takes_the_freest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    full = gpu("NVIDIA GeForce RTX 3090", 24, 20)
    free = gpu("NVIDIA GeForce RTX 3060", 12, 3)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(full, free))
    device = find_device("this")
    assert device.name == "RTX 3060"
    assert device.total == 12 * GIB - GIB // 4
    assert (device.held, device.budget) == (3 * GIB, 9 * GIB - GIB // 4)
    assert (device.tflops, device.bandwidth) == (12.7, 360), "the 12 GB row, for that is the nearer size"
    assert find_device("This:0").name == "RTX 3090"


def test_this_names_who_holds_memory_and_leaves_itself_out(monkeypatch: pytest.MonkeyPatch) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        name = psutil.Process(other.pid).name()
        gone = 2**22 + 12345
        one = gpu("Tesla T4", 16, 9, (other.pid, 4 * GIB), (os.getpid(), 2 * GIB), (gone, None))
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(one))
        device = find_device("this")
    finally:
        other.communicate()
    assert device.held == 7 * GIB
    assert device.held_by == (f"{name} (pid {other.pid}) 4.00 GiB", f"process (pid {gone})")


def test_this_with_an_old_driver_that_counts_its_share_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(gpu("Experimental GPU", 10, 1), reserved=False))
    device = find_device("this")
    assert (device.total, device.held) == (10 * GIB, GIB + GIB // 4)
    assert (device.name, device.architecture, device.tflops) == ("Experimental GPU", "ampere", 0.0)


def test_this_with_a_number_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(gpu("Tesla T4", 16, 0)))
    with pytest.raises(InputError, match=r"has 1 NVIDIA GPU\(s\), numbered from 0; this:1 was asked for"):
        find_device("this:1")
    with pytest.raises(InputError, match="such as this:0"):
        find_device("this:first")
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    with pytest.raises(InputError, match="sees no GPU"):
        find_device("this")
