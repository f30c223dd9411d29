"""Half precision and memory formats: what shrinks, what does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_nets import WEIGHTS, at_the_end, most, pieces, traced
from torch import nn, optim

from oomproof.memory.timeline import PHASES, Timeline
from oomproof.trace.torch.loop import Pieces


def layers() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.LayerNorm(32), nn.Linear(32, 8), nn.Softmax(-1)
    )


def made_by(timeline: Timeline, owner: str) -> set[int]:
    """Sizes of the blocks that a module made in forward."""
    rows = (timeline.phase == PHASES.index("forward")) & (timeline.owner == timeline.owners.index(owner))
    return {int(size) for size in timeline.bytes[rows]}


@pytest.mark.parametrize(("precision", "item"), [("fp32", 4), ("fp16", 2), ("bf16", 2)])
def test_half_halves_what_a_gpu_keeps_in_half(precision: str, item: int) -> None:
    timeline = traced(pieces(layers), precision=precision)
    assert 256 * 128 * item in made_by(timeline, "1")  # ReLU of a linear
    assert 256 * 32 * item in made_by(timeline, "2")
    assert (256 * 32 * 4 in made_by(timeline, "2")) == (item == 4)
    assert 256 * 32 * 4 in made_by(timeline, "3")  # norms and softmax stay fp32
    assert 256 * 8 * 4 in made_by(timeline, "5")
    weights = at_the_end(timeline)["parameter"]
    assert at_the_end(timeline)["gradient"] == at_the_end(timeline)["optimizer"] == weights
    assert weights == sum(p.nbytes for p in layers().parameters())


def test_convolutions_halve() -> None:
    def job() -> Pieces:
        net = lambda: nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())  # noqa: E731
        return Pieces(net, lambda: torch.rand(4, 3, 32, 32), lambda model, x: model(x).mean())

    full, half = traced(job()), traced(job(), precision="fp16")
    output = 4 * 16 * 32 * 32
    assert output * 4 in made_by(full, "0") and output * 2 in made_by(half, "0")
    assert output * 2 in made_by(half, "1") and output * 2 in made_by(half, "2")
    assert output * 4 not in made_by(half, "0") | made_by(half, "1") | made_by(half, "2")


def with_scaler(model: Any, x: torch.Tensor, optimizer: optim.Optimizer) -> None:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).square().mean()
    model.scaler.scale(loss).backward()
    model.scaler.step(optimizer)
    model.scaler.update()


def scaled() -> nn.Module:
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    net.scaler = torch.amp.GradScaler("cuda")
    return net


def test_a_scaled_step_updates() -> None:
    run = traced(pieces(scaled, step=with_scaler, optimizer=optim.Adam))
    primed = traced(pieces(optimizer=optim.Adam), precision="fp16")
    assert at_the_end(run)["optimizer"] == at_the_end(primed)["optimizer"] == 2 * WEIGHTS + 4 * 4
    assert run.peak().bytes == pytest.approx(primed.peak().bytes, abs=64)  # the scaler's own few numbers
    for phase in ("forward", "backward", "optimizer"):
        assert run.by_phase()[phase] == pytest.approx(primed.by_phase()[phase], abs=64)


def test_channels_last_changes_strides_and_no_sizes() -> None:
    strides = []

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = model(x)
        strides.append((x.stride(), y.stride(), model[0].weight.stride()))
        return y.mean()

    def job() -> Pieces:
        return Pieces(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), lambda: torch.rand(2, 3, 10, 10), loss)

    plain, last = traced(job()), traced(job(), channels_last=True)
    assert strides == [
        ((300, 100, 10, 1), (512, 64, 8, 1), (27, 9, 3, 1)),
        ((300, 1, 30, 3), (512, 1, 64, 8), (27, 1, 9, 3)),
    ]
    assert at_the_end(last) == at_the_end(plain)
    assert most(last, "activation") == most(plain, "activation")


def test_channels_last_reaches_every_image_of_a_batch() -> None:
    seen = []

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        seen.extend([batch["images"][0].stride(), batch["labels"].stride()])
        return model(batch["images"][0]).mean()

    def batch() -> Any:
        return {"images": (torch.rand(2, 3, 10, 10),), "labels": torch.zeros(2, 5)}

    traced(Pieces(lambda: nn.Conv2d(3, 8, 3), batch, loss), channels_last=True)
    assert seen == [(300, 1, 30, 3), (5, 1)]
