"""What oomproof.Guard costs while nothing fails: a guarded training against the same one without, in one run.

    python bench/guard.py                   # ResNet-50, 8 images of 160 x 160, SGD, on the CPU or the GPU there is
    python bench/guard.py --optimizer AdamW --fused
    python bench/guard.py --parts           # only the last line, on a busy machine: see below

Three trainings take turns, each step in another order, so that whatever else the machine does falls on all alike: two
without a guard, whose difference is what this machine calls nothing, and one with. Ratios are medians of rounds, with
the interval that nine of ten resampled runs fall into. On the CPU the clock is the process's processor time.

Where the machine is too busy for such a comparison, the last line tells more: what a guard does besides is timed by
itself (notes before a step, the protected update against the plain one, readings of memory) and divided by the step.
With ``--parts`` nothing else is run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
import torchvision
from torch.nn.functional import cross_entropy

from oomproof.run.guard.guard import Guard
from oomproof.run.monitor.monitor import COST, Monitor

WARM_UP = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--side", type=int, default=160)
    parser.add_argument("--optimizer", default="SGD", choices=("SGD", "AdamW"))
    parser.add_argument("--fused", action="store_true", help="the optimizer's fused form")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--parts", action="store_true", help="only what a guard does besides, timed by itself")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = torch.rand(given.images, 3, given.side, given.side, device=device)
    labels = torch.randint(0, 1000, (given.images,), device=device)
    named = {"momentum": 0.9} if given.optimizer == "SGD" else {}
    kind = getattr(torch.optim, given.optimizer)

    def new_training() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = torchvision.models.get_model(given.model).to(device).train()
        return model, kind(model.parameters(), lr=1e-3, fused=given.fused or None, **named)

    def plain() -> Callable[[], None]:
        model, optimizer = new_training()

        def step() -> None:
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()

        return step

    guard, monitor = Guard(*new_training()), Monitor()

    def guarded() -> Callable[[], None]:
        def step() -> None:
            guard.step((images, labels), lambda model, batch: cross_entropy(model(batch[0]), batch[1]))
            monitor.step()

        return step

    turns = {"plain": plain(), "plain again": plain(), "guarded": guarded()}
    if given.parts:
        del turns["plain again"]
    seconds = take_turns(turns, 1 if given.parts else given.rounds, device)
    usual = statistics.median(seconds["plain"])
    form = f"{given.optimizer}{', fused' * given.fused}"
    clock = "processor time" if device.type == "cpu" else "time"
    print(f"{given.model}, {given.images} images of {given.side}, {form}: {usual:.3f} s of {clock} a step")
    for name in () if given.parts else ("plain again", "guarded"):
        middle, low, high = compare(seconds[name], seconds["plain"], seconds["plain again"])
        print(f"  {name:<12} {middle:+.2%}  ({low:+.2%} to {high:+.2%})")
    note, update = added_seconds(guard, new_training(), device)
    print(
        f"  by its parts {(note + update) / usual + COST:+.2%}  (notes {note / usual:+.2%}, update "
        f"{update / usual:+.2%}, readings {COST:+.2%} at most)"
    )


def added_seconds(
    guard: Guard, plain: tuple[torch.nn.Module, torch.optim.Optimizer], device: torch.device
) -> tuple[float, float]:
    """What a guarded step does besides the step, monitoring apart: notes before it, and what the update takes longer.
    Gradients are there from the last one."""
    model, optimizer = plain
    for parameter, other in zip(model.parameters(), guard._passes.model.parameters(), strict=True):
        parameter.grad = None if other.grad is None else other.grad.clone()
    parts: dict[str, Callable[[], object]] = {
        "note": guard._before.note,
        "update": guard._passes.optimizer.step,
        "plain update": optimizer.step,
    }
    seconds = take_turns(parts, 31, device)
    longer = [a - b for a, b in zip(seconds["update"], seconds["plain update"], strict=True)]
    return statistics.median(seconds["note"]), statistics.median(longer)


def take_turns(
    steps: dict[str, Callable[[], object]], rounds: int, device: torch.device
) -> dict[str, list[float]]:  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    for place in range(rounds + WARM_UP):
        order = order[1:] + order[:1]
        for name in order:
            began = _now(device)
            steps[name]()
            ended = _now(device)
            if place >= WARM_UP:
                seconds[name].append(ended - began)
    return seconds


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def compare(one: list[float], plain: list[float], again: list[float]) -> tuple[float, float, float]:
    """How much longer it takes than the mean of both plain ones, or, for the second of these, than the first."""
    if one is again:
        ratios = [a / b - 1 for a, b in zip(one, plain, strict=True)]
    else:
        ratios = [a / ((b + c) / 2) - 1 for a, b, c in zip(one, plain, again, strict=True)]
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[100], medians[1900]


if __name__ == "__main__":
    main()
