"""One of two processes of a Lightning or Hugging Face training with DistributedDataParallel, guarded: run by
test_guard_trainer_ranks, as torchrun would start it."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from failing_allocations import FailingAllocations
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import oomproof

warnings.simplefilter("ignore")
RANK = int(os.environ["RANK"])


class Data(Dataset[Any]):
    def __init__(self) -> None:
        noise = torch.Generator().manual_seed(5)
        self.images = torch.rand(32, 6, generator=noise)

    def __len__(self) -> int:
        return 32

    def __getitem__(self, place: int) -> Any:
        return {"pixel_values": self.images[place], "labels": place % 3}


class Net(nn.Module):
    """Memory runs out in its pass where it is told to."""

    def __init__(self, failing: FailingAllocations | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
        self.failing = [failing] if failing else []

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if not self.failing:
            return {"loss": cross_entropy(self.net(pixel_values), labels)}
        with self.failing[0]:
            return {"loss": cross_entropy(self.net(pixel_values), labels)}


def train_lightning(net: Net, guarded: bool, accumulate: int, folder: Path) -> Any:
    import lightning.pytorch as lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.inner(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    callback = oomproof.lightning.Guard()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, gradient_clip_val=0.5,
        accumulate_grad_batches=accumulate, callbacks=[callback] if guarded else [],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(Data(), batch_size=4))
    return callback.guard


def train_transformers(net: Net, guarded: bool, accumulate: int, folder: Path) -> Any:
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, num_train_epochs=1, learning_rate=0.01, use_cpu=True,
        gradient_accumulation_steps=accumulate, report_to=[], save_strategy="no", disable_tqdm=True, seed=3,
    )  # fmt: skip
    trainer = transformers.Trainer(net, arguments, train_dataset=Data())
    callback = oomproof.transformers.Guard(trainer)
    if guarded:
        trainer.add_callback(callback)
    trainer.train()
    return callback.guard


def main() -> None:
    framework, guarded, fails_at, accumulate, out = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    failing = FailingAllocations({fails_at} if RANK == 1 and fails_at >= 0 else set())
    net = Net(failing if guarded else None)
    train = {"lightning": train_lightning, "transformers": train_transformers}[framework]
    guard = train(net, guarded, accumulate, Path(out).parent)
    about = {
        "weights": [value for each in net.state_dict().values() for value in each.flatten().tolist()],
        "failed": failing.failed,
        "recoveries": guard.recoveries if guard is not None else None,
    }
    Path(f"{out}.{RANK}").write_text(json.dumps(about))
    sys.stdout.flush()
    os._exit(0)


main()
