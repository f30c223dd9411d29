"""oomproof.lightning.Guard: memory runs out at every place in turn, and Lightning's training is the one it would be."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from failing_allocations import FailingAllocations
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import oomproof
from oomproof.errors import OutOfMemory
from thorough import thorough_but

lightning = pytest.importorskip("lightning.pytorch")
# Lightning warns of loggers and workers.
pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Module(lightning.LightningModule):
    """Fails where it is told to: in the pass, not in the trainer around it."""

    def __init__(self, failing: FailingAllocations | None = None, manual: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.2), nn.ReLU(), nn.Linear(12, 3))
        self.failing = [failing] if failing else []
        self.automatic_optimization = not manual

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.failing:
            with self.failing[0]:
                found = cross_entropy(self.net(batch[0]), batch[1])
        else:
            found = cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", found)
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(found)
            optimizer.step()
        return found

    def backward(self, loss: torch.Tensor) -> None:
        if self.failing:
            with self.failing[0]:
                loss.backward()
        else:
            loss.backward()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def train(module: Module, folder: Path, *callbacks: Any, **given: Any) -> Module:
    noise = torch.Generator().manual_seed(5)
    data = TensorDataset(torch.rand(32, 6, generator=noise), torch.randint(0, 3, (32,), generator=noise))
    options = {"max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False, **given}
    trainer = lightning.Trainer(
        callbacks=list(callbacks), enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        **options,
    )  # fmt: skip
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, DataLoader(data, batch_size=8))
    return module


def farthest(first: nn.Module, second: nn.Module) -> float:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("batches_an_update", thorough_but([1], [1, 2]))
def test_the_training_is_the_one_without_failures(batches_an_update: int, tmp_path: Path) -> None:
    given = {"accumulate_grad_batches": batches_an_update, "gradient_clip_val": 0.5}

    def new(failing: FailingAllocations | None = None) -> Module:
        module = Module(failing)
        module.net[1].p = 0.0
        return module

    reference = train(new(), tmp_path, **given)
    counted = FailingAllocations()
    assert farthest(reference, train(new(counted), tmp_path, oomproof.lightning.Guard(), **given)) == 0
    assert counted.count > 20
    for place in range(0, counted.count, 3):
        failing = FailingAllocations({place})
        module = train(new(failing), tmp_path, oomproof.lightning.Guard(), **given)
        assert failing.failed == 1, place
        assert farthest(reference, module) < 1e-12, place


def test_with_dropout_nothing_is_drawn_twice(tmp_path: Path) -> None:
    reference = train(Module(), tmp_path)
    assert farthest(reference, train(Module(), tmp_path, oomproof.lightning.Guard())) == 0


def test_nothing_left_to_try_stops_with_the_state_intact(tmp_path: Path) -> None:
    module = Module(FailingAllocations({9}))
    with pytest.raises(OutOfMemory, match=r"step 1: out of memory in forward or backward.*as before this step"):
        train(module, tmp_path, oomproof.lightning.Guard(floor=8))
    assert farthest(module, Module()) == 0


def test_a_batch_that_never_fits_is_split_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "memory.jsonl"
    guard = oomproof.lightning.Guard(log=log)
    with caplog.at_level(logging.WARNING, "oomproof.guard"):
        train(Module(FailingAllocations(too_large=90)), tmp_path, guard)
    said = [each.getMessage() for each in caplog.records if each.name == "oomproof.guard"]
    assert len(said) == 1 and "micro-batches of 4 images instead of 8" in said[0]
    assert guard.guard.sizes.largest == 4
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line.get("step") for line in lines] == [1, 2, 3, 4, None]


def test_what_cannot_be_guarded_is_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "memory.jsonl"
    with caplog.at_level(logging.WARNING, "oomproof.guard"):
        train(Module(manual=True), tmp_path, oomproof.lightning.Guard(log=log))
    assert "memory is watched" in caplog.text and "automatic_optimization" in caplog.text
    assert len(log.read_text().splitlines()) == 5
