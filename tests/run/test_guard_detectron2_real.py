"""GuardHook in real Detectron2's training loop. Skipped where Detectron2 is not built: see CONTRIBUTING.md."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "changes"))
from detectron2_models import (
    OF_DETECTRON2,
    AMPTrainer,
    EventStorage,
    SimpleTrainer,
    build,
    build_optimizer,
    config,
    images,
)
from failing_allocations import WORDS

import oomproof

pytestmark = [pytest.mark.slow, OF_DETECTRON2, pytest.mark.usefixtures("same_samples")]
STEPS = 3


@pytest.fixture
def same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samplers take the first candidates of an image instead of random ones, whichever batch it is in."""
    monkeypatch.setattr(torch, "randperm", lambda n, **named: torch.arange(n, device=named.get("device")))


class Limited(torch.nn.Module):
    """A model that runs out of memory with more than so many images."""

    def __init__(self, model: torch.nn.Module, most: int) -> None:
        super().__init__()
        self.model, self.most = model, most
        self.failed = 0

    def forward(self, batch: list[Any]) -> Any:
        losses = self.model(batch)
        if len(batch) > self.most:
            self.failed += 1
            raise torch.cuda.OutOfMemoryError(WORDS)
        return losses


def trainer_of(kind: type, model: torch.nn.Module, cfg: Any) -> Any:
    batches = [copy.deepcopy(images("mask")) for _ in range(STEPS)]
    extra = {"precision": torch.bfloat16} if kind is AMPTrainer else {}
    return kind(model, batches, build_optimizer(cfg, model), **extra)


def in_halves(cfg: Any) -> tuple[torch.nn.Module, list[float]]:
    """As on two GPUs with four images each."""
    model = build(cfg)
    optimizer, totals = build_optimizer(cfg, model), []
    for _ in range(STEPS):
        batch = copy.deepcopy(images("mask"))
        optimizer.zero_grad()
        with EventStorage():
            halves = [sum(model(half).values()) / 2 for half in (batch[:4], batch[4:])]
        for half in halves:
            half.backward()
        optimizer.step()
        totals.append(sum(halves).item())
    return model, totals


def test_a_training_whose_batch_does_not_fit_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    cfg = config("mask", BASE_LR=2e-3)
    expected, totals = in_halves(cfg)
    model = Limited(build(cfg), most=4)
    trainer = trainer_of(SimpleTrainer, model, cfg)
    trainer.register_hooks([oomproof.detectron2.GuardHook()])
    trainer.train(0, STEPS)
    assert model.failed == 1 and trainer.iter == STEPS
    assert [value for value, _ in trainer.storage.history("total_loss").values()] == pytest.approx(totals, rel=1e-5)
    start = build(cfg)
    for a, b, before in zip(model.model.parameters(), expected.parameters(), start.parameters(), strict=True):
        assert (a - b).norm() <= 1e-3 * (b - before).norm()
    changes = [each for each in caplog.messages if "going on with micro-batches of 4 images instead of 8" in each]
    assert len(changes) == 1 and "as on so many GPUs" in changes[0]


@pytest.mark.thorough
def test_mixed_precision_goes_on_too() -> None:
    cfg = config("mask", BASE_LR=2e-3)
    model = Limited(build(cfg), most=4)
    before = copy.deepcopy(model.state_dict())
    trainer = trainer_of(AMPTrainer, model, cfg)
    trainer.register_hooks([oomproof.detectron2.GuardHook()])
    trainer.train(0, 1)
    assert model.failed == 1 and trainer.iter == 1
    moved = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    assert len(moved) > 20


def test_one_image_that_does_not_fit_ends_the_training_as_it_was() -> None:
    cfg = config("mask", BASE_LR=2e-3)
    model = Limited(build(cfg), most=0)
    before = copy.deepcopy(model.state_dict())
    trainer = trainer_of(SimpleTrainer, model, cfg)
    trainer.register_hooks([oomproof.detectron2.GuardHook()])
    with pytest.raises(oomproof.OutOfMemory, match="as before this step"):
        trainer.train(0, STEPS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
