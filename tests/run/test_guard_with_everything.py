"""A training with all that people put into one: GradScaler, EMA, clipping, a scheduler for every batch, dropout, and
buffers that are written in place or replaced. Memory runs out at every place in turn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from failing_allocations import FailingAllocations
from torch import nn, optim
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from oomproof.errors import OutOfMemory
from oomproof.run.guard.guard import Guard

pytestmark = pytest.mark.usefixtures("quick_collector")
STEPS = 3
OPTIMIZERS: dict[str, Any] = {
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "SGD, Nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5),
}


class Net(nn.Module):
    seen: torch.Tensor
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.drop, self.head = nn.Linear(6, 10), nn.Dropout(0.4), nn.Linear(10, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        self.mean = 0.9 * self.mean + 0.1 * images.detach().mean(0)
        return self.head(self.drop(self.body(images).relu()))


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def batches() -> list[Any]:
    noise = torch.Generator().manual_seed(1)
    return [(torch.rand(4, 6, generator=noise), torch.randint(0, 3, (4,), generator=noise)) for _ in range(STEPS)]


class Training:
    def __init__(self, make: Any) -> None:
        self.model = Net()
        self.optimizer = make(self.model.parameters())
        self.schedule = optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=0.1, total_steps=10)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        torch.manual_seed(5)

    def clip(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)


def train_plainly(make: Any) -> tuple[list[torch.Tensor], list[float]]:
    own, losses = Training(make), []
    average = AveragedModel(own.model, multi_avg_fn=get_ema_multi_avg_fn())
    for batch in batches():
        own.optimizer.zero_grad()
        found = loss(own.model, batch)
        own.scaler.scale(found).backward()
        own.scaler.unscale_(own.optimizer)
        own.clip()
        own.scaler.step(own.optimizer)
        own.scaler.update()
        average.update_parameters(own.model)
        own.schedule.step()
        losses.append(found.item())
    return [*own.model.state_dict().values(), *average.state_dict().values()], losses


def train_guarded(make: Any, fails_at: int = -1) -> tuple[list[torch.Tensor], list[float], FailingAllocations]:
    """Without splitting, which dropout would notice: a step that cannot go on stops, and the script does it again."""
    own, losses = Training(make), []
    guard = Guard(own.model, own.optimizer, {"ema": True}, own.scaler, floor=4)
    given = batches()
    failing = FailingAllocations({fails_at})
    for batch in given:
        with failing:
            try:
                found = guard.step(batch, loss, own.clip)
            except OutOfMemory as error:
                assert "as before this step" in str(error), fails_at
                found = guard.step(batch, loss, own.clip)
        own.schedule.step()
        losses.append(found.item())
    return [*own.model.state_dict().values(), *guard.average.state_dict().values()], losses, failing


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_failure_at_every_allocation_in_turn(name: str) -> None:
    make = OPTIMIZERS[name]
    expected, losses = train_plainly(make)
    undisturbed, found, counted = train_guarded(make)
    assert found == losses and all(map(torch.equal, undisturbed, expected))
    assert counted.count > 100
    for place in range(counted.count):
        state, found, failing = train_guarded(make, place)
        assert failing.failed == 1, place
        assert found == pytest.approx(losses, rel=1e-9), place
        for one, other in zip(state, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, msg=str(place))
