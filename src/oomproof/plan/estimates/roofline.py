"""How long a step takes on a device: a roofline of the operations that were traced.

Every operation takes the longest of three times: its arithmetic, its memory traffic, its launch. The shares of the
vendor's peak figures that are reached in practice are round numbers, from published step times on one card; the aim is
less the seconds than their ratio between two settings of one job on one device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.activity import (
    CONVOLUTION,
    DEPTHWISE,
    FORMS,
    GROUPED,
    HALF,
    HALF_CONVOLUTION,
    HALF_DEPTHWISE,
    Work,
)
from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Seconds
from oomproof.memory.timeline import PHASES, Timeline

TENSOR_CORES, TF32 = (7, 0), (8, 0)
"""compute capabilities from which on half precision has units of its own, and fp32 convolutions use them"""
REACHED = {
    "arithmetic": 0.6, "products": 0.75, "convolutions": 0.5,
    "bandwidth": 0.7, "grouped": 0.4, "depthwise": 0.25, "half depthwise": 0.12,
}  # fmt: skip
"""Shares of the peak figures. Products and convolutions are those on tensor cores; the last three are the bandwidth of
convolutions that go a few channels at a time. Read off, in round numbers, from 33 of the classifiers whose step time on
an RTX 3090 in AMP is published, and tried on 49 others (bench/boundary.py); fp32's depthwise share was measured on a
CPU."""
LAUNCH = 8e-6
"""seconds for which one operation keeps the GPU at least: Python, dispatcher and launch are seldom quicker"""
HOST_LINK = 12e9
"""bytes a second between host and device, as PCIe 3.0 x16 gives them"""
TYPICAL = Device("a typical card", total=0, capability=(8, 6), tflops=13.0, half_tflops=51.0, bandwidth=360.0)
"""stands in where only an amount of memory was given: the figures of an RTX 3060"""
_UPDATE = PHASES.index("optimizer")
OFF = (0.65, 1.25)
"""estimate over truth, from the 10th to the 90th percentile of those 49 others (0.64 to 1.19) and of the 33 (0.88 to
1.25); 0.99 and 1.06 in the middle"""


@dataclass(frozen=True)
class Speed:
    """What a device does in a second."""

    plain: float
    half: float
    convolution: float
    half_convolution: float
    """operations"""
    bandwidth: float
    grouped: float
    depthwise: float
    half_depthwise: float
    """bytes; the last three of convolutions that go a few channels at a time"""
    launch: float = LAUNCH
    """seconds an operation"""

    def seconds(self, work: Work) -> NDArray[np.float64]:
        """Of every operation."""
        rate, moved = np.full(len(FORMS), self.plain), np.full(len(FORMS), self.bandwidth)
        rate[[HALF, CONVOLUTION, HALF_CONVOLUTION]] = self.half, self.convolution, self.half_convolution
        rate[GROUPED] = self.convolution
        moved[[GROUPED, DEPTHWISE, HALF_DEPTHWISE]] = self.grouped, self.depthwise, self.half_depthwise
        longest: NDArray[np.float64] = np.maximum(work.flops / rate[work.form], work.bytes / moved[work.form])
        return np.maximum(longest, self.launch)

    def total(self, work: Work) -> float:
        return float(self.seconds(work).sum())


def speed_of(device: Device) -> Speed:
    card = device if device.tflops and device.bandwidth else replace(TYPICAL, name=device.name)
    plain = card.tflops * 1e12 * REACHED["arithmetic"]
    has_cores, half = card.capability >= TENSOR_CORES, card.half_tflops * 1e12
    of_cores = [REACHED[each if has_cores else "arithmetic"] for each in ("products", "convolutions")]
    products, convolutions = (half * share for share in of_cores)
    moved = {name: card.bandwidth * 1e9 * share for name, share in REACHED.items()}
    return Speed(
        plain=plain,
        half=max(products, plain),
        convolution=max(plain, half * REACHED["convolutions"] / 2) if card.capability >= TF32 else plain,
        half_convolution=max(convolutions, plain),
        bandwidth=moved["bandwidth"],
        grouped=moved["grouped"],
        depthwise=moved["depthwise"],
        half_depthwise=moved["half depthwise"],
    )


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
