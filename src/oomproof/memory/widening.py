"""Steps that half precision does not make smaller: autocast leaves most of their results in fp32."""

from __future__ import annotations

from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline

_MOST = 0.3
"""of the peak; a guess between ViTs (0.01) and torchvision's detectors with frozen normalisation (0.5 and more)"""


def stays_wide(about: About, step: Timeline) -> bool:
    return about.widened > _MOST * max(1, step.peak().bytes)


def describe_widening(about: About, precision: str) -> str:
    return (
        f"{precision} may take more memory than fp32 here: {about.widened_by} multiplies and adds numbers in fp32, so "
        f"its results are in fp32 again ({about.widened / 2**30:.2f} GiB a step), and the next layer casts a copy"
    )
