"""What XLA's compiler is told of the GPU it compiles for, as the text of a GpuTargetConfigProto.

A GPU of the table of devices brings its memory, bandwidth and compute capability; the rest is here. Processors, clock
and cache are the vendor's figures to the best of our knowledge. They steer how XLA fuses operations, not what it
can compile: a GPU that is not listed is compiled for as its nearest relative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from oomproof.memory.cards.devices import Device, list_devices

OLDEST = (7, 5)
"""compute capability that the CUDA 13 tools of the extra still make code for"""


class Generation(NamedTuple):
    """What is the same in every GPU of a compute capability (CUDA C++ Programming Guide, technical specifications)."""

    shared: int
    """bytes of shared memory a multiprocessor has"""
    shared_by_block: int
    """bytes that one block may ask for"""
    threads: int
    """that a multiprocessor holds at a time"""
    lanes: int
    """fp32 units of a multiprocessor"""
    features: str = "NONE"


GENERATIONS = {
    (7, 5): Generation(65536, 65536, 1024, 64),
    (8, 0): Generation(167936, 166912, 2048, 64),
    (8, 6): Generation(102400, 101376, 1536, 128),
    (8, 9): Generation(102400, 101376, 1536, 128),
    (9, 0): Generation(233472, 232448, 2048, 128, "ACCELERATED_FEATURES"),
    (10, 0): Generation(233472, 232448, 2048, 128, "ACCELERATED_FEATURES"),
    (12, 0): Generation(102400, 101376, 1536, 128),
}


class Chip(NamedTuple):
    processors: int
    clock: float
    """GHz at boost"""
    cache: float
    """MiB of second-level cache"""


CHIPS = {
    "GTX 1650": Chip(14, 1.67, 1),
    "GTX 1660": Chip(22, 1.79, 1.5),
    "GTX 1660 Ti": Chip(24, 1.77, 1.5),
    "RTX 2060 6GB": Chip(30, 1.68, 3),
    "RTX 2070": Chip(36, 1.62, 4),
    "RTX 2080": Chip(46, 1.71, 4),
    "RTX 2080 Ti": Chip(68, 1.55, 5.5),
    "TITAN RTX": Chip(72, 1.77, 6),
    "Tesla T4": Chip(40, 1.59, 4),
    "A30": Chip(56, 1.44, 24),
    "A100 40GB": Chip(108, 1.41, 40),
    "A100 80GB": Chip(108, 1.41, 40),
    "RTX 3050 8GB": Chip(20, 1.78, 2),
    "RTX 3060 12GB": Chip(28, 1.78, 3),
    "RTX 3060 Ti": Chip(38, 1.67, 4),
    "RTX 3070": Chip(46, 1.73, 4),
    "RTX 3070 Ti": Chip(48, 1.77, 4),
    "RTX 3080 10GB": Chip(68, 1.71, 5),
    "RTX 3080 Ti": Chip(80, 1.67, 6),
    "RTX 3090": Chip(82, 1.70, 6),
    "RTX A4000": Chip(48, 1.56, 4),
    "RTX A5000": Chip(64, 1.70, 6),
    "RTX A6000": Chip(84, 1.80, 6),
    "A10": Chip(72, 1.70, 6),
    "A40": Chip(84, 1.74, 6),
    "RTX 4060": Chip(24, 2.46, 24),
    "RTX 4060 Ti 8GB": Chip(34, 2.54, 32),
    "RTX 4060 Ti 16GB": Chip(34, 2.54, 32),
    "RTX 4070": Chip(46, 2.48, 36),
    "RTX 4070 Ti": Chip(60, 2.61, 48),
    "RTX 4080": Chip(76, 2.51, 64),
    "RTX 4090": Chip(128, 2.52, 72),
    "L4": Chip(58, 2.04, 48),
    "L40": Chip(142, 2.49, 96),
    "RTX 6000 Ada": Chip(142, 2.51, 96),
    "H100": Chip(132, 1.98, 50),
    "H100 PCIe": Chip(114, 1.76, 50),
    "H200": Chip(132, 1.98, 50),
    "B200": Chip(148, 1.97, 126),
    "RTX 5070": Chip(48, 2.51, 48),
    "RTX 5080": Chip(84, 2.62, 64),
    "RTX 5090": Chip(170, 2.41, 96),
}
"""by the names of ``memory/cards/devices.py``"""

USUAL = "RTX 3090"
"""where a device is a plain amount of memory"""


@dataclass(frozen=True)
class Target:
    gpu: str
    """the GPU that is compiled for"""
    text: str
    """GpuTargetConfigProto"""
    note: str = ""
    """why it is another GPU than the one asked for; empty where it is that one"""


def target_for(device: Device | None) -> Target:
    """The description of a device, or of its nearest relative."""
    described = {each.name: each for each in list_devices() if each.name in CHIPS}
    if device is None or not device.capability[0]:
        return Target(USUAL, _text(described[USUAL]), f"XLA compiled the step for an {USUAL}: a size names no GPU")
    own = next((each for each in described.values() if each.name == device.name), None)
    if own is not None:
        return Target(own.name, _text(own))
    nearest = min(described.values(), key=lambda other: _distance(device, other))
    note = f"XLA compiled the step for the {nearest.name}, the nearest GPU to the {device.name} that is described to it"
    if device.capability < OLDEST:
        note += f": it makes no code for compute capability {device.capability[0]}.{device.capability[1]}"
    return Target(nearest.name, _text(nearest), note)


def _distance(device: Device, other: Device) -> tuple[int, int, float]:
    """Of the same generation first, then of as much arithmetic."""
    (major, minor), (other_major, other_minor) = device.capability, other.capability
    return abs(major - other_major), abs(minor - other_minor), abs(device.tflops - other.tflops)


def _text(device: Device) -> str:
    chip, generation = CHIPS[device.name], GENERATIONS[device.capability]
    major, minor = device.capability
    facts = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49152,
        "shared_memory_per_core": generation.shared,
        "shared_memory_per_block_optin": generation.shared_by_block,
        "threads_per_core_limit": generation.threads,
        "core_count": chip.processors,
        "fpus_per_core": generation.lanes,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "thread_dim_limit_x": 1024,
        "thread_dim_limit_y": 1024,
        "thread_dim_limit_z": 64,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "memory_bandwidth": int(device.bandwidth * 10**9),
        "l2_cache_size": int(chip.cache * 2**20),
        "clock_rate_ghz": chip.clock,
        "device_memory_size": device.total,
    }
    lines = [f"  {name}: {value}" for name, value in facts.items()]
    lines.append(
        f"  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {generation.features} }}"
    )
    versions = "dnn_version_info { major: 9 minor: 10 }"
    names = ['platform_name: "CUDA"', f'device_description_str: "{device.name}"']
    return "\n".join(["gpu_device_info {", *lines, "}", *names, versions, ""])
