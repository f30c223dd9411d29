"""PyTorch's CUDA caching allocator: what it reserves to serve a Timeline.

    >>> from oomproof.memory.timeline import Builder
    >>> step = Builder()
    >>> weights = step.allocate(3 << 20, kind="parameter", owner="fc", op="parameter")
    >>> result = replay(step.build())
    >>> result.allocated >> 20, result.reserved >> 20    # 3 MiB out of a segment of 20 MiB
    (3, 20)

One stream, no graph capture, no roundup_power2_divisions, no garbage collection threshold: the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from oomproof.errors import InputError
from oomproof.memory.allocators.cuda_expandable import ExpandableSegments
from oomproof.memory.allocators.cuda_segments import GRANULE, LARGE_BUFFER, MIB, UNLIMITED, Segments
from oomproof.memory.allocators.replaying import Placement, Replay, event_order, serve_history
from oomproof.memory.timeline import Timeline

__all__ = ["CudaRules", "Placement", "Replay", "event_order", "place_blocks", "replay"]


@dataclass(frozen=True)
class CudaRules:
    """The settings of PYTORCH_CUDA_ALLOC_CONF that change what is reserved."""

    expandable_segments: bool = False
    max_split_size_mb: int = 0
    """MiB; 0: blocks of any size may be split"""

    def __post_init__(self) -> None:
        if self.max_split_size_mb and self.max_split_size_mb <= LARGE_BUFFER // MIB:
            raise InputError(
                f"max_split_size_mb must be 0 (no limit) or more than {LARGE_BUFFER // MIB}, as PyTorch wants it; "
                f"got {self.max_split_size_mb}"
            )


DEFAULTS = CudaRules()


def replay(timeline: Timeline, rules: CudaRules = DEFAULTS, capacity: int | None = None) -> Replay:
    """Serves the Timeline's blocks in their order; ``capacity`` is the most the allocator may reserve, in bytes."""
    return place_blocks(timeline, rules, capacity)[0]


def place_blocks(
    timeline: Timeline, rules: CudaRules = DEFAULTS, capacity: int | None = None
) -> tuple[Replay, Placement]:
    """As ``replay``, with the place of every block."""
    max_split = rules.max_split_size_mb * MIB or UNLIMITED
    return serve_history(
        timeline, (ExpandableSegments if rules.expandable_segments else Segments)(capacity, max_split), GRANULE
    )
