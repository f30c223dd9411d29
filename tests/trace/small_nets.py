"""Nets and loops that are small enough to check by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from oomproof.changes.torch.training import OPTIMIZERS, Training
from oomproof.memory.timeline import KINDS, Timeline
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

WIDTHS = (64, 128, 32)
WEIGHTS = 4 * (64 * 128 + 128 + 128 * 32 + 32)
"""bytes of mlp()'s parameters"""


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def deep(blocks: int = 8, width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.Sequential(*(Block(width) for _ in range(blocks))))


def square(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def pieces(
    model: Callable[[], nn.Module] = mlp,
    *,
    rows: int = 256,
    loss: Callable[[Any, Any], Any] | None = square,
    optimizer: Callable[[Any], Any] = OPTIMIZERS["sgd"],
    step: Callable[[Any, Any, Any], Any] | None = None,
) -> Pieces:
    return Pieces(model, lambda: torch.rand(rows, 64), None if step else loss, optimizer, step)


def traced(job: Pieces | None = None, dialect: Any = "cuda", **training: Any) -> Timeline:
    return trace_step(job or pieces(), Training(**training), dialect=dialect)


def at_the_end(timeline: Timeline) -> dict[str, int]:
    """Bytes by kind of what outlives the step; kinds of which there is nothing are left out."""
    return {kind: size for kind, size in timeline.by_kind(timeline.ticks - 1).items() if size}


def most(timeline: Timeline, kind: str) -> int:
    """The most bytes of a kind that are ever alive together."""
    rows = timeline.kind == KINDS.index(kind)
    return replace(timeline, bytes=np.where(rows, timeline.bytes, 0)).peak().bytes
