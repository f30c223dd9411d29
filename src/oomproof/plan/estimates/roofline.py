"""How long a step takes on a device: a roofline of the operations that were traced.

Every operation takes the longest of three times: its arithmetic, its memory traffic, its launch. The shares of the
vendor's peak figures that are reached in practice are round numbers; the aim is not the seconds but their ratio
between two settings of one job on one device. None of it was measured on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.activity import CONVOLUTION, DEPTHWISE, HALF, Work
from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Seconds
from oomproof.memory.timeline import PHASES, Timeline

TENSOR_CORES, TF32 = (7, 0), (8, 0)
"""compute capabilities from which on half precision has units of its own, and fp32 convolutions use them"""
REACHED = {"arithmetic": 0.6, "tensor cores": 0.4, "bandwidth": 0.75, "depthwise": 0.25}
"""shares of the peak figures; the last is the bandwidth of depthwise convolutions, which on a CPU (measured there) is a
third to a quarter of a copy's"""
LAUNCH = 8e-6
"""seconds for which one operation keeps the GPU at least: Python, dispatcher and launch are seldom quicker"""
HOST_LINK = 12e9
"""bytes a second between host and device, as PCIe 3.0 x16 gives them"""
TYPICAL = Device("a typical card", total=0, capability=(8, 6), tflops=13.0, half_tflops=51.0, bandwidth=360.0)
"""stands in where only an amount of memory was given: the figures of an RTX 3060"""
_UPDATE = PHASES.index("optimizer")
OFF = (0.81, 1.45)
"""estimate over truth, from the 10th to the 90th percentile of 29 classifiers whose step time on an RTX 3090 in AMP is
published (timm's training benchmark, PyTorch 1.12); 0.99 in the middle"""


@dataclass(frozen=True)
class Speed:
    """What a device does in a second."""

    plain: float
    half: float
    convolution: float
    """operations"""
    bandwidth: float
    """bytes"""
    depthwise: float
    """bytes, of depthwise convolutions"""
    launch: float = LAUNCH
    """seconds an operation"""

    def seconds(self, work: Work) -> NDArray[np.float64]:
        """Of every operation."""
        rate = np.full(len(work), self.plain)
        rate[work.form == HALF] = self.half
        rate[work.form == CONVOLUTION] = self.convolution
        moved = np.where(work.form == DEPTHWISE, self.depthwise, self.bandwidth)
        longest: NDArray[np.float64] = np.maximum(work.flops / rate, work.bytes / moved)
        return np.maximum(longest, self.launch)

    def total(self, work: Work) -> float:
        return float(self.seconds(work).sum())


def speed_of(device: Device) -> Speed:
    card = device if device.tflops and device.bandwidth else replace(TYPICAL, name=device.name)
    plain = card.tflops * 1e12 * REACHED["arithmetic"]
    cores = card.half_tflops * 1e12 * REACHED["tensor cores"]
    half = cores if card.capability >= TENSOR_CORES else card.half_tflops * 1e12 * REACHED["arithmetic"]
    convolution = max(plain, cores / 2) if card.capability >= TF32 else plain
    moved, depthwise = (card.bandwidth * 1e9 * REACHED[name] for name in ("bandwidth", "depthwise"))
    return Speed(plain, max(half, plain), convolution, moved, depthwise)


def step_time(step: Timeline, device: Device, micro_batches: int) -> Seconds | None:
    """One step, all its micro-batches and the update; None where the card's speed or the step's work is not known."""
    if not (device.tflops and device.bandwidth and len(step.work)):
        return None
    expected = seconds_of(step, speed_of(device), 1, micro_batches, 0) * micro_batches
    low, high = OFF
    return Seconds(expected, expected / high, expected / low)


def seconds_of(step: Timeline, speed: Speed, images: int, count: int, travels: int) -> float:
    """Of one image: ``count`` micro-batches of ``images``, of which the step shows one, and one update, for which
    ``travels`` bytes of state come from the host and go back."""
    seconds = speed.seconds(step.work)
    update = step.work.phase == _UPDATE
    every = float(seconds[~update].sum())
    once = float(seconds[update].sum()) + 2 * travels / HOST_LINK
    # A step from a file shows no work: any time will do, as long as it can be divided by.
    return max(every * count + once, speed.launch) / (images * count)
