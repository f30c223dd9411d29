"""The devices people train on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A GPU, or a plain amount of memory. ``held`` is what other processes hold on it now."""

    name: str
    total: int
    """bytes as CUDA reports them: a little less than the size on the box"""
    architecture: str = ""
    """maxwell, pascal, volta, turing, ampere, ada, hopper, blackwell; empty for a plain size"""
    capability: tuple[int, int] = (0, 0)
    """CUDA compute capability"""
    tflops: float = 0.0
    """peak fp32 arithmetic, 10^12 operations a second"""
    half_tflops: float = 0.0
    """peak dense fp16 arithmetic with fp32 accumulation, tensor cores where there are any"""
    bandwidth: float = 0.0
    """memory bandwidth in 10^9 bytes a second"""
    held: int = 0
    held_by: tuple[str, ...] = ()

    @property
    def budget(self) -> int:
        return max(0, self.total - self.held)
