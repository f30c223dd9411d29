"""The loop's own words: losses in every form, and what it says of pieces that do not fit."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_nets import at_the_end, deep, mlp, most, pieces, traced
from torch import nn, optim

from oomproof.changes.torch.losses import total
from oomproof.changes.torch.recompute import find_repeated_blocks
from oomproof.errors import InputError, JobError, OomproofError
from oomproof.memory.host_memory import host_memory
from oomproof.memory.runtime import Runtime
from oomproof.trace.torch.loop import Pieces

TWO, THREE = torch.tensor(2.0), torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (TWO, 2),
        (TWO.reshape(1, 1), 2),
        ({"box": TWO, "mask": THREE}, 5),
        ([TWO, TWO, THREE], 7),
        ((TWO,), 2),
        ((part for part in (TWO, THREE)), 5),
        (SimpleNamespace(loss=TWO, logits=THREE), 2),
    ],
    ids=["scalar", "one element", "dict", "list", "tuple", "generator", ".loss"],
)
def test_losses_in_every_form(losses: Any, expected: float) -> None:
    loss = total(losses)
    assert loss.dim() == 0 and loss.item() == expected


@pytest.mark.parametrize(
    ("losses", "kind"),
    [
        (None, "NoneType"),
        (0.5, "float"),
        ({}, "dict"),
        ([], "list"),
        ([TWO, 1.0], "list"),
        ({"a": None}, "dict"),
        ("x", "str"),
    ],
)
def test_losses_that_are_none(losses: Any, kind: str) -> None:
    with pytest.raises(JobError, match=rf"must return a tensor, or a dict or list of tensors; it returned {kind}\b"):
        total(losses)


@pytest.mark.parametrize("reduced", ["none", "mean"])
def test_a_loss_of_several_numbers_is_refused_as_pytorch_does(reduced: str) -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(model(x), torch.zeros(256, 32), reduction=reduced)

    def step(model: nn.Module, x: torch.Tensor, optimizer: optim.Optimizer) -> None:
        loss(model, x).backward()
        optimizer.step()

    if reduced == "mean":
        assert traced(pieces(loss=loss)).peak().bytes and traced(pieces(step=step)).peak().bytes
        return
    said = r"one number; it is a tensor of shape \(256, 32\), .*scalar outputs.* \(in loss at .*test_loop\.py:\d+\)"
    with pytest.raises(JobError, match=said):
        traced(pieces(loss=loss))
    with pytest.raises(JobError, match=r"created only for scalar outputs at .*test_loop\.py:\d+: loss\(model"):
        traced(pieces(step=step))
    with pytest.raises(JobError, match=r"shape \(2,\)"):
        total(SimpleNamespace(loss=THREE))


def refused(message: str, job: Pieces, kind: type[OomproofError] = JobError, **training: Any) -> None:
    with pytest.raises(kind, match=re.escape(message)) as raised:
        traced(job, **training)
    assert "\n" not in str(raised.value)


def test_a_model_that_is_none() -> None:
    refused("model factory must return a torch.nn.Module; it returned function", pieces(lambda: mlp))  # type: ignore[arg-type, return-value]
    refused("model factory must return a torch.nn.Module; it returned NoneType", pieces(lambda: None))  # type: ignore[arg-type, return-value]


def test_an_optimizer_that_is_none() -> None:
    refused("must return a torch.optim.Optimizer; it returned list", pieces(optimizer=list))


def test_nothing_to_train() -> None:
    refused("no parameter to train", pieces(lambda: mlp().requires_grad_(False)))
    refused("no parameter to train", pieces(nn.ReLU))


def test_a_loss_that_is_none() -> None:
    refused("loss must return a tensor", pieces(loss=lambda model, x: float(model(x).sum())))


@pytest.mark.parametrize("make", [optim.RMSprop, optim.Adafactor])
def test_a_form_of_update_that_does_not_exist(make: Any) -> None:
    message = f"update=fused: {make.__name__} has no fused form; use auto or plain"
    refused(message, pieces(optimizer=make), InputError, update="fused")


def test_an_optimizer_of_ones_own_has_the_plain_form_only() -> None:
    class Own(optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter].setdefault("average", torch.zeros_like(parameter)).add_(parameter.grad)

    refused("has no foreach form", pieces(optimizer=Own), InputError, update="foreach")
    assert traced(pieces(optimizer=Own), update="plain").by_phase()


def test_nothing_to_checkpoint() -> None:
    refused("no repeated blocks", pieces(), InputError, checkpoint="nonreentrant")


def test_blocks_that_are_checkpointed() -> None:
    assert find_repeated_blocks(deep(3)) == ["1.0", "1.1", "1.2"]
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert find_repeated_blocks(encoder) == ["layers.0", "layers.1"]


def test_blocks_inside_blocks_are_left_to_the_outer_ones() -> None:
    class Stage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 16) for _ in range(2)))

    stages = nn.ModuleList([Stage(), Stage()])
    assert find_repeated_blocks(stages) == ["0", "1"]


def test_their_own_line_is_shown() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x[:, :3]).sum()  # the mistake

    with pytest.raises(
        JobError, match=r"the job raised RuntimeError: .* at .*test_loop\.py:\d+: return model\(x\[:, :3\]\)"
    ):
        traced(pieces(loss=loss))


@pytest.mark.parametrize(("where", "share"), [("device", 1.0), ("host", 0.0), ("8bit", 0.25)])
def test_where_optimizer_state_is_kept(where: str, share: float) -> None:
    job = pieces(lambda: nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 32)), rows=4)
    timeline = traced(job, optimizer="adam", optimizer_state=where)
    weights = at_the_end(timeline)["parameter"]
    state = at_the_end(timeline).get("optimizer", 0)
    assert state == pytest.approx(2 * weights * share, abs=0.05 * weights)  # biases and counters aside
    forward = timeline.by_phase()["forward"]
    plain = traced(job, optimizer="adam").by_phase()["forward"]
    assert plain - forward == pytest.approx(2 * weights * (1 - share), abs=0.05 * weights)


def test_state_on_the_host_comes_to_the_device_for_the_update() -> None:
    job = pieces(lambda: nn.Linear(64, 4096, bias=False), rows=4)
    timeline = traced(job, optimizer="adam", optimizer_state="host", update="plain")
    weights = at_the_end(timeline)["parameter"]
    assert timeline.peak().phase == "optimizer"
    assert timeline.peak().bytes >= 4 * weights  # weights, gradients and, in transit, both moments
    assert most(timeline, "optimizer") < weights / 100


def test_state_on_the_host_is_counted_there() -> None:
    held = [traced(optimizer="adam", optimizer_state=where) for where in ("device", "host")]
    sizes = (64 * 128, 128, 128 * 32, 32)  # two of each, and every one a power of two already
    assert [step.about.on_host for step in held] == [0, 2 * 4 * sum(sizes)]
    device, host = (host_memory(step, Runtime())[0] for step in held)
    assert host.expected - device.expected == 2 * 4 * sum(sizes)
