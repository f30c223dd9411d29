"""Optimizer state in host RAM gives the very same parameters; in 8 bits it trains as well in a quarter of the bytes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn, optim
from torch.nn.functional import cross_entropy

from oomproof.changes.torch import optimizer_state
from oomproof.changes.torch.eight_bits import dequantise_codes, quantise_values
from oomproof.changes.torch.optimizer_state import keep_state
from oomproof.errors import InputError

Make = Callable[[Any], optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=False),
    "sgd": lambda p: optim.SGD(p, lr=0.1, foreach=False),
    "adam": lambda p: optim.Adam(p, lr=1e-2, amsgrad=True, foreach=False),
    "adamw": lambda p: optim.AdamW(p, lr=1e-2, foreach=False),
    "rmsprop": lambda p: optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True, foreach=False),
    "uncentred": lambda p: optim.RMSprop(p, lr=1e-3, foreach=False),
    "adafactor": lambda p: optim.Adafactor(p, lr=1e-2, foreach=False),
    "adagrad": lambda p: optim.Adagrad(p, lr=1e-2, foreach=False),  # has state before its first step
}


def net() -> nn.Module:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 64), nn.ReLU(), nn.Linear(64, 5)
    )
    return model.to(memory_format=torch.channels_last)


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(seed)
    return torch.rand(16, 3, 8, 8, generator=noise), torch.randint(0, 5, (16,), generator=noise)


def train(model: nn.Module, optimizer: optim.Optimizer, steps: int = 3) -> float:
    for step in range(steps):
        images, labels = batch(step % 4)
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups with rates of their own, as fine-tuning has them."""
    conv, *rest = model.parameters()
    return [{"params": [conv], "lr": 0.003}, {"params": rest}]


@pytest.mark.parametrize("part", [1, 100, optimizer_state.PART])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_on_the_host_it_is_the_same_update(kind: str, part: int) -> None:
    plain, ours = net(), net()
    optimizer = OPTIMIZERS[kind](groups(ours))
    keep_state(optimizer, "host")
    with patch.object(optimizer_state, "PART", part):
        train(ours, optimizer)
    train(plain, OPTIMIZERS[kind](groups(plain)))
    assert same(plain, ours)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 5]


@pytest.mark.parametrize("where", ["host", "8bit"])
def test_state_is_away_between_updates(where: str) -> None:
    brought: list[torch.Tensor] = []
    to_device = optimizer_state.to_device

    def seen(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        brought.append(tensor)
        return to_device(tensor, device)

    model = net()
    optimizer = optim.Adam(model.parameters())
    keep_state(optimizer, where)
    with patch.object(optimizer_state, "to_device", seen):
        train(model, optimizer, 2)
    kept = [tensor for state in optimizer.state.values() for tensor in state.values()]
    if where == "host":
        assert {tensor.data_ptr() for tensor in brought} <= {tensor.data_ptr() for tensor in kept}  # the same places
        assert len(brought) == 2 * len(list(model.parameters()))
    else:
        plain = 2 * sum(p.nbytes for p in model.parameters())
        assert sum(tensor.nbytes for tensor in kept) < 0.3 * plain


@pytest.mark.parametrize("where", ["host", "8bit"])
def test_saved_and_loaded(where: str) -> None:
    model = net()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    keep_state(optimizer, where)
    train(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    assert {name for state in saved["state"].values() for name in state} == {"step", "exp_avg", "exp_avg_sq"}
    assert all(tensor.dtype is torch.float32 for state in saved["state"].values() for tensor in state.values())

    twin = copy.deepcopy(model)
    usual = optim.AdamW(twin.parameters(), lr=1e-2)
    usual.load_state_dict(copy.deepcopy(saved))  # as a plain optimizer
    again = copy.deepcopy(model)
    other = optim.AdamW(again.parameters(), lr=1e-2)
    keep_state(other, where)
    other.load_state_dict(copy.deepcopy(saved))
    train(model, optimizer), train(twin, usual), train(again, other)
    assert same(model, again)
    assert same(model, twin) == (where == "host")


def test_hooks_schedulers_and_closures_see_one_step() -> None:
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    keep_state(optimizer, "host")
    seen = []
    optimizer.register_step_pre_hook(lambda *args: seen.append("before"))
    optimizer.register_step_post_hook(lambda *args: seen.append("after"))
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)

    def closure() -> torch.Tensor:
        seen.append("closure")
        images, labels = batch()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        return loss

    with patch.object(optimizer_state, "PART", 1), warnings.catch_warnings():
        warnings.simplefilter("error")  # «lr_scheduler.step() before optimizer.step()»
        assert optimizer.step(closure) is not None
        scheduler.step()
    assert seen == ["before", "closure", "after"]


def test_parameters_without_gradients_get_no_state() -> None:
    model = net()
    model[3].requires_grad_(False)
    optimizer = optim.Adam(model.parameters())
    keep_state(optimizer, "host")
    train(model, optimizer, 1)
    assert set(optimizer.state) == {p for p in model.parameters() if p.requires_grad}


def test_what_it_cannot_do() -> None:
    model = net()
    with pytest.raises(
        InputError, match=r"optimizer_state=host needs .* LBFGS is none .* leave optimizer_state=device"
    ):
        keep_state(optim.LBFGS(model.parameters()), "host")
    with pytest.raises(InputError, match="must be device, host or 8bit; got 'disk'"):
        keep_state(optim.SGD(model.parameters()), "disk")

    class Own(optim.SGD):
        pass

    with pytest.raises(InputError, match="Own is none"):
        keep_state(Own(model.parameters()), "8bit")


@pytest.mark.parametrize("signed", [True, False])
def test_eight_bits_keep_ratios(signed: bool) -> None:
    noise = torch.Generator().manual_seed(0)
    exponents = torch.rand(3, 1000, generator=noise) * -14
    values = 10 * 2**exponents * (torch.randn(3, 1000, generator=noise).sign() if signed else 1)
    codes, largest = quantise_values(values, signed)
    assert codes.dtype is torch.uint8 and codes.shape == values.shape and largest.shape == (12,)
    back = dequantise_codes(codes, largest, signed)
    assert ((back - values).abs() <= 0.046 * values.abs()).all()
    again, largest_again = quantise_values(back, signed)
    assert torch.equal(again, codes) and torch.equal(largest_again, largest)  # saving and loading changes nothing


def test_eight_bits_at_the_edges() -> None:
    values = torch.zeros(300)
    assert torch.equal(dequantise_codes(*quantise_values(values, True), True), values)
    assert torch.equal(dequantise_codes(*quantise_values(values, False), False), values)
    values[0], values[1] = 1.0, 1e-20
    assert (
        dequantise_codes(*quantise_values(values, False), False)[1] > 0
    )  # a second moment of 0 would divide by nothing
    assert dequantise_codes(*quantise_values(values, True), True)[1] == 0
    values[2] = float("nan")
    assert dequantise_codes(*quantise_values(values, True), True)[0].isnan()  # trouble is not hidden
    assert dequantise_codes(*quantise_values(values, True), True)[256] == 0
    values[2] = float("inf")
    assert dequantise_codes(*quantise_values(values, False), False)[2].isinf()


def test_memory_format_is_kept() -> None:
    values = torch.randn(8, 16, 5, 7).contiguous(memory_format=torch.channels_last)
    codes, largest = quantise_values(values, True)
    back = dequantise_codes(codes, largest, True)
    assert back.stride() == values.stride()
    assert ((back - values).abs() <= 0.046 * values.abs() + 1e-4).all()


@pytest.mark.parametrize("kind", ["momentum", "adam", "adamw", "uncentred"])
def test_eight_bits_train_as_well(kind: str) -> None:
    plain, ours = net(), net()
    first = train(net(), OPTIMIZERS[kind](plain.parameters()), 1)
    expected = train(plain, OPTIMIZERS[kind](plain.parameters()), 25)
    optimizer = OPTIMIZERS[kind](ours.parameters())
    keep_state(optimizer, "8bit")
    found = train(ours, optimizer, 25)
    assert not same(plain, ours)
    assert expected < 0.9 * first
    assert found == pytest.approx(expected, abs=0.03 * first)


def test_averages_that_are_subtracted_stay_exact() -> None:
    model = net()
    optimizer = OPTIMIZERS["rmsprop"](model.parameters())
    keep_state(optimizer, "8bit")
    train(model, optimizer, 2)
    kinds = {name: tensor.dtype for name, tensor in optimizer.state[model[3].weight].items()}
    assert kinds["square_avg"] is kinds["grad_avg"] is torch.float32
    assert kinds["momentum_buffer"] is torch.uint8
