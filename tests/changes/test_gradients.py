"""Gradients that are used at once: the same parameters, buffers and optimizer state as in the plain step, and no
gradient that waits for the update."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from promise_models import CASES, fresh
from torch import nn, optim
from torch.nn.functional import cross_entropy

from oomproof.changes.torch.gradients import at_once_for
from oomproof.changes.torch.losses import total
from oomproof.changes.torch.step import Step
from oomproof.errors import InputError
from thorough import thorough_but

Make = Callable[[Any], optim.Optimizer]
IDENTICAL, ROUNDING = 1e-5, 1e-12
DECAYED = {"momentum": 0.9, "weight_decay": 1e-2}
SUMMED: dict[str, Make] = {
    "momentum": lambda p: optim.SGD(p, lr=0.1, **DECAYED),
    "no decay": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "maximize": lambda p: optim.SGD(p, lr=0.1, maximize=True, **DECAYED),
    "rate in a tensor": lambda p: optim.SGD(p, lr=torch.tensor(0.1, dtype=torch.float64), **DECAYED),
}
UPDATED: dict[str, Make] = {
    "no momentum": lambda p: optim.SGD(p, lr=0.1, weight_decay=1e-2),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, nesterov=True, **DECAYED),
    "dampening": lambda p: optim.SGD(p, lr=0.1, dampening=0.5, **DECAYED),
    "adam": lambda p: optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
    "adafactor": lambda p: optim.Adafactor(p, lr=1e-2),
}


def net() -> nn.Module:
    torch.manual_seed(1)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 64), nn.ReLU(), nn.Linear(64, 5))
    return nn.Sequential(*layers).double()


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(seed)
    return torch.rand(6, 3, 8, 8, generator=noise).double(), torch.randint(0, 5, (6,), generator=noise)


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups with rates of their own, as fine-tuning has them."""
    conv, *rest = model.parameters()
    return [{"params": [conv], "lr": 0.003}, {"params": rest}]


def trained(make: Make, settings: dict[str, Any] | None, steps: int = 3) -> tuple[nn.Module, optim.Optimizer]:
    """By Step, or by hand where there are no ``settings``; the rate changes on the way."""
    model = net()
    optimizer = make(groups(model))
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
    step = Step(model, optimizer, loss, settings) if settings is not None else None
    for number in range(steps):
        if step is None:
            optimizer.zero_grad()
            loss(model, batch(number)).backward()
            optimizer.step()
        else:
            step(batch(number))
            assert all(parameter.grad is None for parameter in model.parameters())
        scheduler.step()
    return model, optimizer


def farthest(one: tuple[nn.Module, optim.Optimizer], other: tuple[nn.Module, optim.Optimizer]) -> float:
    """The largest relative difference of any parameter, buffer or tensor of the optimizer's state. What is so small a
    part of the largest of its kind is 0 in truth: the gradient of the bias of keys in attention, for one."""
    kinds = []
    for model, optimizer in (one, other):
        kept = {"": [*model.parameters(), *model.buffers()]}
        for parameter in model.parameters():
            for name, value in optimizer.state.get(parameter, {}).items():
                kept.setdefault(name, []).append(torch.as_tensor(value))
        kinds.append(kept)
    assert kinds[0].keys() == kinds[1].keys()
    worst = 0.0
    for name, expected in kinds[1].items():
        largest = max(tensor.detach().double().norm().item() for tensor in expected)
        for ours, plain in zip(kinds[0][name], expected, strict=True):
            difference = (ours.detach().double() - plain.detach().double()).norm().item()
            if difference > ROUNDING * largest:
                worst = max(worst, difference / max(plain.detach().double().norm().item(), ROUNDING * largest))
    return worst


@pytest.mark.parametrize("images", [6, 4, 3, 1])
@pytest.mark.parametrize("kind", SUMMED)
def test_any_number_of_micro_batches_goes_into_the_momentum(kind: str, images: int) -> None:
    ours = trained(SUMMED[kind], {"gradients": "at_once", "batch": images})
    assert farthest(ours, trained(SUMMED[kind], None)) <= IDENTICAL
    assert at_once_for(ours[1]) == "any"


@pytest.mark.parametrize("kind", UPDATED)
def test_others_update_in_backward(kind: str) -> None:
    ours = trained(UPDATED[kind], {"gradients": "at_once"})
    assert farthest(ours, trained(UPDATED[kind], None)) <= IDENTICAL
    assert at_once_for(ours[1]) == "one"


@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("make", [SUMMED["momentum"], UPDATED["adamw"]], ids=["momentum", "adamw"])
@pytest.mark.parametrize("case", thorough_but(["RetinaNet", "GroupNorm"], CASES))
def test_real_models(case: str, make: Make) -> None:
    """Heads that several levels share, parameters that take no part, frozen ones."""
    results = []
    for gradients in (None, "at_once"):
        model = copy.deepcopy(fresh(case, True, torch.float64))
        optimizer = make([parameter for parameter in model.parameters() if parameter.requires_grad])
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        step = Step(model, optimizer, CASES[case].loss, {"gradients": gradients}) if gradients else None
        for number in range(2):
            torch.manual_seed(number)  # samplers and dropout draw
            if step:
                step(CASES[case].batch())
                continue
            optimizer.zero_grad()
            total(CASES[case].loss(model, CASES[case].batch())).backward()
            optimizer.step()
        results.append((model, optimizer))
    assert farthest(*results) <= IDENTICAL


@pytest.mark.parametrize("kind", ["momentum", "adamw"])
def test_modules_computed_again_go_with_it(kind: str) -> None:
    make = {**SUMMED, **UPDATED}[kind]
    ours = trained(make, {"gradients": "at_once", "checkpoint": "0,3"})
    assert farthest(ours, trained(make, None)) <= IDENTICAL


def test_a_parameter_without_a_gradient_stays_as_it_is() -> None:
    model = net()
    spare = nn.Parameter(torch.ones(3))
    optimizer = optim.SGD([*model.parameters(), spare], lr=0.1, **DECAYED)
    step = Step(model, optimizer, loss, {"gradients": "at_once"})
    step(batch(0))
    assert spare.tolist() == [1, 1, 1]
    assert spare not in optimizer.state


def test_saved_and_loaded() -> None:
    model, optimizer = trained(SUMMED["momentum"], {"gradients": "at_once", "batch": 3})
    saved = copy.deepcopy(optimizer.state_dict())
    again = copy.deepcopy(model)
    other = SUMMED["momentum"](groups(again))
    other.load_state_dict(saved)
    Step(again, other, loss, {"gradients": "at_once", "batch": 2})(batch(7))
    plain, usual = trained(SUMMED["momentum"], None)
    usual.zero_grad()
    loss(plain, batch(7)).backward()
    usual.step()
    assert farthest((again, other), (plain, usual)) <= IDENTICAL


def test_hooks_and_closures_see_one_step() -> None:
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, **DECAYED)
    step = Step(model, optimizer, loss, {"gradients": "at_once", "batch": 2})
    seen: list[str] = []
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    step(batch(0))
    assert seen == ["after"]
    assert optimizer.step(lambda: 3.0) == 3.0


REFUSED: list[tuple[Make, dict[str, Any], str]] = [
    (SUMMED["momentum"], {"precision": "fp16"}, "with fp16 gradients are scaled"),
    (SUMMED["momentum"], {"optimizer_state": "host"}, "state has to be on the device in backward"),
    (UPDATED["adamw"], {"accumulate": 2}, "AdamW needs the sum of all micro-batches' gradients"),
    (UPDATED["nesterov"], {"accumulate": 2}, "SGD needs the sum of all micro-batches' gradients"),
    (UPDATED["adamw"], {"checkpoint": "reentrant"}, "reentrant checkpointing may compute again"),
    (lambda p: optim.LBFGS(p[1]["params"]), {}, "LBFGS is none that is known to; leave gradients=kept"),
]


@pytest.mark.parametrize(("make", "more", "reason"), REFUSED, ids=[reason for _, _, reason in REFUSED])
def test_what_would_be_another_training_is_refused(make: Make, more: dict[str, Any], reason: str) -> None:
    model = net()
    with pytest.raises(InputError, match=reason):
        Step(model, make(groups(model)), loss, {"gradients": "at_once", **more})


def test_a_batch_that_turns_out_to_need_two_micro_batches_is_refused() -> None:
    model = net()
    before = copy.deepcopy(model.state_dict())
    step = Step(model, optim.AdamW(model.parameters()), loss, {"gradients": "at_once", "batch": 4})
    with pytest.raises(InputError, match="a step has one micro-batch, and this one has more"):
        step(batch(0))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_clipping_in_a_hook_of_the_optimizer_is_refused() -> None:
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, **DECAYED)
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    with pytest.raises(InputError, match="a hook before its step, which would find no gradients"):
        Step(model, optimizer, loss, {"gradients": "at_once"})


def test_a_hook_that_comes_later_is_refused_before_anything_is_used() -> None:
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, **DECAYED)
    step = Step(model, optimizer, loss, {"gradients": "at_once"})
    assert at_once_for(optimizer) == "any"
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    assert at_once_for(optimizer) == ""
    with pytest.raises(InputError, match="take the hook away, or gradients=kept"):
        step(batch(0))
    assert not optimizer.state


@pytest.mark.parametrize("gradients", ["kept", "at_once"])
def test_a_second_step_on_the_same_parameters_is_refused(gradients: str) -> None:
    model = net()
    Step(model, optim.SGD(model.parameters(), lr=0.1, **DECAYED), loss, {"gradients": "at_once"})
    with pytest.raises(InputError, match="an earlier Step uses the gradients of these parameters at once"):
        Step(model, optim.SGD(model.parameters(), lr=0.1, **DECAYED), loss, {"gradients": gradients})


def test_an_optimizer_that_needs_all_parameters_together_has_no_such_form() -> None:
    assert at_once_for(optim.LBFGS(net().parameters())) == ""
