"""What oomproof.Guard costs while nothing fails: a guarded training against the same one without, in one run.

    python bench/guard.py                   # ResNet-50, 8 images of 160 x 160, SGD, on the CPU or the GPU there is

Steps alternate between both, so that whatever else the machine does falls on both alike. The ratio is that of the
medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torchvision
from torch.nn.functional import cross_entropy

from oomproof.run.guard.guard import Guard
from oomproof.run.monitor.monitor import Monitor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--side", type=int, default=160)
    parser.add_argument("--optimizer", default="SGD", choices=("SGD", "AdamW"))
    parser.add_argument("--steps", type=int, default=15)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch = (
        torch.rand(given.images, 3, given.side, given.side, device=device),
        torch.randint(0, 1000, (given.images,), device=device),
    )
    plain, guarded = (torchvision.models.get_model(given.model).to(device).train() for _ in range(2))
    named = {"momentum": 0.9} if given.optimizer == "SGD" else {}
    optimizer, other = (
        getattr(torch.optim, given.optimizer)(model.parameters(), lr=1e-3, **named) for model in (plain, guarded)
    )
    guard = Guard(guarded, other)
    monitor = Monitor()

    def plain_step() -> None:
        optimizer.zero_grad()
        cross_entropy(plain(batch[0]), batch[1]).backward()
        optimizer.step()

    def guarded_step() -> None:
        guard.step(batch, lambda model, batch: cross_entropy(model(batch[0]), batch[1]))
        monitor.step()

    seconds: dict[str, list[float]] = {"plain": [], "guarded": []}
    for place in range(given.steps + 2):
        for name, step in (("plain", plain_step), ("guarded", guarded_step)):
            began = time.process_time() if device.type == "cpu" else time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            ended = time.process_time() if device.type == "cpu" else time.perf_counter()
            if place >= 2:
                seconds[name].append(ended - began)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    ratio = medians["guarded"] / medians["plain"]
    clock = "processor time" if device.type == "cpu" else "time"
    print(
        f"{given.model}, {given.images} images of {given.side}, {given.optimizer}: {clock} of a step "
        f"{medians['plain']:.4f} s plain, {medians['guarded']:.4f} s guarded and monitored: {ratio - 1:+.2%}"
    )


if __name__ == "__main__":
    main()
