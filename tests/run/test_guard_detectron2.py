"""A guarded iteration of a Detectron2 trainer, proved on one with the attributes of its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from failing_allocations import FailingAllocations
from torch import nn
from torch.nn.functional import cross_entropy

import oomproof
from oomproof.errors import JobError


class Classifier(nn.Module):
    """Takes a list of dicts and returns a dict of losses, as Detectron2's models do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Tanh(), nn.Conv2d(8, 4, 1))

    def forward(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        found = self.body(torch.stack([each["image"] for each in batch])).mean((2, 3))
        return {"loss_cls": cross_entropy(found, torch.stack([each["label"] for each in batch]))}


class Trainer:
    def __init__(self) -> None:
        noise = torch.Generator().manual_seed(1)
        batch = [
            {"image": torch.rand(3, 4, 4, generator=noise), "label": torch.randint(0, 4, (), generator=noise)}
            for _ in range(6)
        ]
        self.model, self.iter = Classifier().train(), 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self._data_loader_iter = itertools.repeat(batch)
        self.metrics: list[Any] = []

    def _write_metrics(self, losses: Mapping[str, torch.Tensor], data_time: float) -> None:
        assert data_time >= 0
        self.metrics.append({name: loss.item() for name, loss in losses.items()})


def test_an_iteration_that_runs_out_of_memory_is_the_same_iteration(caplog: pytest.LogCaptureFixture) -> None:
    plain, guarded = Trainer(), Trainer()
    for _ in range(2):
        losses = plain.model(next(plain._data_loader_iter))
        plain.optimizer.zero_grad()
        sum(losses.values()).backward()
        plain._write_metrics(losses, 0.0)
        plain.optimizer.step()
    guard = oomproof.detectron2.guard_of(guarded)
    with FailingAllocations(too_large=4 * 8 * 16):
        for _ in range(2):
            oomproof.detectron2.guarded_step(guarded, guard)
    assert guard.sizes.largest == 3
    assert [each["loss_cls"] for each in guarded.metrics] == pytest.approx([e["loss_cls"] for e in plain.metrics])
    for a, b in zip(plain.model.parameters(), guarded.model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5)
    assert "as on so many GPUs" in caplog.messages[0]


def test_a_model_that_is_not_trained_is_told() -> None:
    trainer = Trainer()
    guard = oomproof.detectron2.guard_of(trainer)
    trainer.model.eval()
    with pytest.raises(JobError, match="evaluation mode"):
        oomproof.detectron2.guarded_step(trainer, guard)
