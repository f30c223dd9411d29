"""The gradient of x[indices] and of other choices is one table, as PyTorch makes it for tensors that are not fake."""

from __future__ import annotations

from collections.abc import Callable

import pytest
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


CHOICES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "largest": lambda x: x.max(1).values,
    "largest five": lambda x: x.topk(5).values,
    "median": lambda x: x.median(1).values,
    "gathered": lambda x: x.gather(1, torch.zeros(x.shape[0], 2, dtype=torch.int64)),
    "selected": lambda x: x.index_select(0, torch.arange(3)),
    "taken": lambda x: x.take(torch.arange(10)),
}


class Choosing(torch.nn.Module):
    def __init__(self, choose: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.table, self.choose = torch.nn.Linear(8, 1000), choose

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.choose(self.table(x)).sum()


@pytest.mark.parametrize("name", CHOICES)
def test_other_choices_too(name: str) -> None:
    pieces = Pieces(lambda: Choosing(CHOICES[name]), lambda: torch.rand(500, 8), lambda model, x: model(x))
    traced = trace_step(pieces, Training(), dialect="cpu").peak()
    assert traced.bytes == second_step(pieces, Training()).peak
