"""How long a training stands still when memory runs out: oomproof.Guard against accelerate and Lightning.

    python bench/recovery.py                # ResNet-18, 16 images of 64 x 64, on the CPU

Memory runs out (injected) in the middle of the forward pass of update K, with more than 8 images at a time. The clock
runs from that error to the end of update K with the same 16 images an update, in processor time:

- Guard begins the step again in micro-batches.
- accelerate's find_executable_batch_size calls the training function again with a smaller batch, from the start; the
  function here accumulates gradients, so that its updates are the same, and cuts batches in half as Guard does.
- Lightning's Tuner.scale_batch_size searches a size before the training begins; a failure in update K > 1 ends it, and
  the search and the training start over.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torchvision
from torch.nn.functional import cross_entropy

IMAGES, FITS, SIDE = 16, 8, 64
WORDS = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.76 GiB"


class Clock:
    """From the first error to the end of the update it was in."""

    def __init__(self, update: int) -> None:
        self.update, self.began, self.seconds = update, 0.0, 0.0
        self.updates = 0

    def fail(self, images: int) -> None:
        """Memory runs out with more than so many images, from the update on; after that it stays short."""
        if images > FITS and (self.began or self.updates + 1 >= self.update):
            self.began = self.began or time.process_time()
            raise torch.cuda.OutOfMemoryError(WORDS)

    def updated(self) -> None:
        self.updates += 1
        if self.began and not self.seconds and self.updates == self.update:
            self.seconds = time.process_time() - self.began


class Net(torch.nn.Module):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torchvision.models.resnet18(norm_layer=torchvision.ops.FrozenBatchNorm2d)
        self.net.layer3.register_forward_pre_hook(lambda _, given: clock.fail(len(given[0])))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)


def batches(size: int) -> Iterator[Any]:
    noise = torch.Generator().manual_seed(1)
    while True:
        images, labels = torch.rand(IMAGES, 3, SIDE, SIDE, generator=noise), torch.randint(0, 1000, (IMAGES,))
        yield from zip(images.split(size), labels.split(size), strict=True)


def with_guard(clock: Clock) -> None:
    import oomproof

    model = Net(clock)
    guard = oomproof.Guard(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for batch in batches(IMAGES):
        guard.step(batch, lambda model, batch: cross_entropy(model(batch[0]), batch[1]))
        clock.updated()
        if clock.updates >= clock.update:
            return


def with_accelerate(clock: Clock) -> None:
    from accelerate.utils import find_executable_batch_size

    tried = [IMAGES]

    def halve() -> int:
        tried.append(tried[-1] // 2)
        return tried[-1]

    @find_executable_batch_size(starting_batch_size=IMAGES, reduce_batch_size_fn=halve)
    def train(size: int) -> None:
        clock.updates = 0
        model = Net(clock)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        parts = IMAGES // size
        for place, (images, labels) in enumerate(batches(size), 1):
            (cross_entropy(model(images), labels) / parts).backward()
            if place % parts == 0:
                optimizer.step()
                optimizer.zero_grad()
                clock.updated()
                if clock.updates >= clock.update:
                    return

    train()


def with_lightning(clock: Clock) -> None:
    import lightning.pytorch as lightning
    from lightning.pytorch.tuner import Tuner
    from torch.utils.data import DataLoader, TensorDataset

    searching = True

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.batch_size = Net(clock), IMAGES

        def training_step(self, batch: Any, place: int) -> torch.Tensor:
            return cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def train_dataloader(self) -> Any:
            data = TensorDataset(torch.rand(64, 3, SIDE, SIDE), torch.randint(0, 1000, (64,)))
            return DataLoader(data, batch_size=self.batch_size)

        def optimizer_step(self, *given: Any, **named: Any) -> None:
            super().optimizer_step(*given, **named)
            if not searching:
                clock.updated()

    def new_trainer(**given: Any) -> Any:
        return lightning.Trainer(
            accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, **given,
        )  # fmt: skip

    if clock.update > 1:  # it fits at first, and the training dies in update K
        searching = False
        try:
            new_trainer(max_steps=clock.update).fit(Module())
        except RuntimeError:
            searching, clock.updates = True, 0
    module = Module()
    Tuner(new_trainer(max_steps=1)).scale_batch_size(module, mode="power", init_val=IMAGES, max_trials=1)
    searching = False
    new_trainer(max_steps=clock.update, accumulate_grad_batches=IMAGES // module.batch_size).fit(module)


WAYS: dict[str, Callable[[Clock], None]] = {
    "oomproof.Guard": with_guard,
    "accelerate": with_accelerate,
    "Lightning": with_lightning,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, nargs="+", default=(1, 5), metavar="K")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for update in given.updates:
        seconds: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(given.rounds):
            for name, run in WAYS.items():
                clock = Clock(update)
                run(clock)
                seconds[name].append(clock.seconds)
        print(f"out of memory in update {update}: seconds until it is done")
        for name, each in seconds.items():
            print(f"  {name:<15} {statistics.median(each):6.2f}  ({min(each):.2f} to {max(each):.2f})")


if __name__ == "__main__":
    main()
