"""oomproof.transformers.Guard: memory runs out in Hugging Face's Trainer, and the training is the one it would be."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from failing_allocations import FailingAllocations
from torch import nn
from torch.nn.functional import cross_entropy

import oomproof

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Net(nn.Module):
    def __init__(self, failing: FailingAllocations | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 12), nn.Dropout(dropout), nn.ReLU(), nn.Linear(12, 3))
        self.failing = [failing] if failing else []

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": cross_entropy(self._run(pixel_values), labels)}

    def _run(self, pixel_values: torch.Tensor) -> torch.Tensor:
        if not self.failing:
            return self.net(pixel_values)
        with self.failing[0]:
            return self.net(pixel_values)


class Summed(Net):
    """A sum, divided by the labels of all batches of an update, as language models do."""

    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor, num_items_in_batch: Any = None, **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        found = cross_entropy(self._run(pixel_values), labels, reduction="sum")
        return {"loss": found / (len(labels) if num_items_in_batch is None else num_items_in_batch)}


def train(model: nn.Module, folder: Path, guarded: bool = True, accumulate: int = 1, **given: Any) -> Any:
    noise = torch.Generator().manual_seed(5)
    data = [{"pixel_values": torch.rand(6, generator=noise), "labels": place % 3} for place in range(32)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=8, num_train_epochs=1, learning_rate=0.01, use_cpu=True,
        gradient_accumulation_steps=accumulate, report_to=[], save_strategy="no", disable_tqdm=True, seed=3,
        logging_strategy="epoch",
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=data)
    callback = oomproof.transformers.Guard(trainer, **given)
    if guarded:
        trainer.add_callback(callback)
    trainer.train()
    assert "training_step" not in trainer.__dict__ or trainer.training_step.__self__ is trainer  # as it was
    return trainer, callback


def farthest(first: nn.Module, second: nn.Module) -> float:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(("kind", "accumulate"), [(Net, 1), (Net, 2), (Summed, 1), (Summed, 2)])
def test_the_training_is_the_one_without_failures(kind: type[Net], accumulate: int, tmp_path: Path) -> None:
    reference = kind()
    expected, _ = train(reference, tmp_path, guarded=False, accumulate=accumulate)
    counted = FailingAllocations()
    undisturbed = kind(counted)
    train(undisturbed, tmp_path, accumulate=accumulate)
    assert farthest(reference, undisturbed) == 0
    for place in range(0, counted.count, 4):
        failing = FailingAllocations({place})
        model = kind(failing)
        found, callback = train(model, tmp_path, accumulate=accumulate)
        assert failing.failed == 1 and callback.guard.recoveries == 1
        assert farthest(reference, model) < 1e-12, place
        assert found.state.log_history[-1]["train_loss"] == pytest.approx(expected.state.log_history[-1]["train_loss"])


@pytest.mark.usefixtures("double_precision")
def test_a_sum_is_known_for_one_with_dropout_too(tmp_path: Path) -> None:
    """Whether losses are added or averaged is asked without the dropout, which would hide it."""
    reference = Summed(dropout=1e-9)
    train(reference, tmp_path, guarded=False)
    model = Summed(FailingAllocations({2}), dropout=1e-9)
    train(model, tmp_path)
    assert farthest(reference, model) < 1e-9


def test_without_its_trainer_it_watches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "memory.jsonl"
    model = Net()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=8, max_steps=3, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    data = [{"pixel_values": torch.rand(6), "labels": 1} for _ in range(24)]
    callback = oomproof.transformers.Guard(log=log)
    with caplog.at_level(logging.WARNING, "oomproof.guard"):
        transformers.Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
    assert "give it: oomproof.transformers.Guard(trainer)" in caplog.text
    assert [json.loads(line).get("step") for line in log.read_text().splitlines()] == [1, 2, 3, None]
