"""The gradient of x[indices] is one table, as PyTorch makes it for tensors that are not fake."""

from __future__ import annotations

import torch
from real_cpu import second_step

from oomproof.changes.torch.training import Training
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step


class Chosen(torch.nn.Module):
    """One number of each row of a table that is large beside everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Linear(8, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0])
        return self.table(x)[rows, rows % 7].sum()


def test_as_the_real_allocator_has_it() -> None:
    pieces = Pieces(Chosen, lambda: torch.rand(500, 8), lambda model, x: model(x))
    traced = trace_step(pieces, Training(), dialect="cpu").peak()
    assert traced.phase == "backward"
    assert traced.bytes == second_step(pieces, Training()).peak
