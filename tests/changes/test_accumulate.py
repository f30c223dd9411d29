"""Gradients of several batches for one update, in a loop that knows nothing of it."""

from __future__ import annotations

import pytest
import torch

import oomproof
from oomproof.errors import InputError, JobError


def train(
    batches: list[torch.Tensor], accumulated: int, *, zero: str = "optimizer", scaled: bool = False
) -> torch.Tensor:
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    oomproof.accumulate(optimizer, accumulated)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    for batch in batches:
        (net if zero == "model" else optimizer).zero_grad(set_to_none=zero != "in place")
        scaler.scale(net(batch).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    schedule.step()
    return net.weight.detach()


@pytest.mark.parametrize("zero", ["optimizer", "model", "in place"])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_same_as_with_whole_batches(zero: str, scaled: bool) -> None:
    torch.manual_seed(1)
    whole = [torch.rand(8, 4) for _ in range(3)]
    parts = [part for batch in whole for part in batch.split(2)]
    assert torch.allclose(train(parts, 4, zero=zero, scaled=scaled), train(whole, 1), atol=1e-6)


def test_what_cannot_be_is_said() -> None:
    net = torch.nn.Linear(4, 2)
    with pytest.raises(InputError, match="whole number from 1 on"):
        oomproof.accumulate(torch.optim.SGD(net.parameters(), lr=0.1), 0)
    optimizer = torch.optim.LBFGS(net.parameters())
    oomproof.accumulate(optimizer, 2)
    with pytest.raises(JobError, match="closure"):
        optimizer.step(lambda: net(torch.rand(1, 4)).sum())
