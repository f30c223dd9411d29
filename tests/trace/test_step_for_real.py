"""Every way of training, traced as the CPU does it, against the real CPU allocator in the very same loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from real_cpu import second_step
from small_nets import deep, pieces, traced
from torch import optim

from oomproof.changes.torch.training import Training
from oomproof.trace.torch.loop import Pieces

BLOCKS = 3

OPTIMIZERS = {
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "Adam": optim.Adam,
    "AdamW": optim.AdamW,
    "RMSprop": optim.RMSprop,
    "Adafactor": optim.Adafactor,
}

WAYS: list[dict[str, Any]] = [
    {},
    {"accumulate": 2},
    {"accumulate": 4},
    {"zero_grad": "before_backward"},
    {"zero_grad": "keep"},
    {"zero_grad": "keep", "accumulate": 3, "optimizer": "adam"},
    {"checkpoint": "nonreentrant"},
    {"checkpoint": "reentrant"},
    {"checkpoint": "nonreentrant", "accumulate": 2, "zero_grad": "before_backward"},
    {"checkpoint": "1.0,1.1,1.2"},
    {"checkpoint": "0,1:128"},
    {"checkpoint": "1.0:256,1.1:512", "precision": "bf16"},
    {"optimizer_state": "8bit"},
    {"optimizer_state": "8bit", "optimizer": "adam", "update": "foreach"},
    {"gradients": "at_once"},
    {"gradients": "at_once", "accumulate": 3},
    {"gradients": "at_once", "optimizer": "adamw"},
    {"gradients": "at_once", "checkpoint": "1.0,1.1,1.2"},
    {"ema": True},
    {"ema": True, "optimizer": "adamw", "update": "foreach"},
]


def exact(job: Pieces, way: dict[str, Any]) -> None:
    timeline, real = traced(job, "cpu", **way), second_step(job, Training(**way)).peak
    if "checkpoint" in way:  # keeps the generator's state for every block: in host memory where the rest is on a GPU
        real -= BLOCKS * torch.get_rng_state().nbytes
    assert timeline.peak().bytes == pytest.approx(real, rel=0.01)


@pytest.mark.parametrize("update", ["foreach", "plain"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers(optimizer: str, update: str) -> None:
    job = pieces(lambda: deep(BLOCKS), rows=4, optimizer=OPTIMIZERS[optimizer])
    assert traced(job, "cpu", update=update).peak().phase == "optimizer"  # so small is the batch
    exact(job, {"update": update})


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())) or "plain")
def test_ways_of_training(way: dict[str, Any]) -> None:
    exact(pieces(lambda: deep(BLOCKS), rows=512), way)


@pytest.mark.parametrize("optimizer", ["momentum", "AdamW"])
def test_gradients_that_nothing_waits_for(optimizer: str) -> None:
    job = pieces(lambda: deep(BLOCKS), rows=4, optimizer=OPTIMIZERS[optimizer])
    exact(job, {"gradients": "at_once"})
    weights = sum(parameter.nbytes for parameter in deep(BLOCKS).parameters())
    kept, at_once = (traced(job, "cpu", gradients=way, update="plain").peak().bytes for way in ("kept", "at_once"))
    assert kept - at_once > 0.6 * weights


def test_one_model_for_several_traces_is_left_as_it_was() -> None:
    model = deep(BLOCKS)
    job = pieces(lambda: model, rows=4)
    peaks = [traced(job, "cpu", gradients=way).peak().bytes for way in ("kept", "at_once", "kept")]
    assert peaks[0] == peaks[2] > peaks[1]


@pytest.mark.parametrize("zero_grad", ["before_forward", "before_backward", "keep"])
def test_gradients_larger_than_activations(zero_grad: str) -> None:
    exact(pieces(lambda: deep(BLOCKS), rows=4), {"zero_grad": zero_grad, "accumulate": 2})
