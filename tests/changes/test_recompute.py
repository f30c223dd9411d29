"""Modules that are computed again in backward: what they leave behind, what they refuse, and that it saves memory."""

from __future__ import annotations

import copy
import pickle
import re
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from oomproof.changes.torch.recompute import find_repeated_blocks, recompute
from oomproof.errors import InputError, JobError, OomproofError

Pair = namedtuple("Pair", ["left", "right"])


def net(*layers: nn.Module) -> nn.Sequential:
    body = nn.Sequential(*layers) if layers else nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh())
    model = nn.Sequential(OrderedDict(body=body, head=nn.Linear(6, 2))).train()
    torch.manual_seed(0)  # not before: the layers were made by then
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
    return model


def rows(count: int = 4) -> torch.Tensor:
    return torch.rand(count, 6, generator=torch.Generator().manual_seed(1))


def trained(model: nn.Module, setting: str = "none", **how: Any) -> nn.Module:
    recompute(model, setting)
    torch.manual_seed(2)
    x = rows().requires_grad_(how.get("grad_to_input", False))
    model(x).square().mean().backward()
    return model


def same(first: nn.Module, second: nn.Module) -> None:
    for (name, one), (_, other) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=name)
    for (name, one), (_, other) in zip(first.named_buffers(), second.named_buffers(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("setting", ["body", "body:1", "body:3", "body.0,body.2:2,head"])
@pytest.mark.parametrize("grad_to_input", [False, True])
def test_gradients(setting: str, grad_to_input: bool) -> None:
    same(trained(net()), trained(net(), setting, grad_to_input=grad_to_input))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_count_the_step_once(momentum: float | None) -> None:
    def build() -> nn.Module:
        return net(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=momentum), nn.Tanh(), nn.BatchNorm1d(6))

    plain, ours = trained(build()), trained(build(), "body")
    same(plain, ours)
    assert ours.body[1].num_batches_tracked == 1 and ours.body[1].momentum == momentum
    same(plain, trained(build(), "body.1,body.3"))


def test_running_statistics_in_reentrant_form() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.norm(self.line(x))

    plain = trained(net(Block(), Block()), grad_to_input=True)
    same(plain, trained(net(Block(), Block()), "reentrant", grad_to_input=True))
    same(plain, trained(net(Block(), Block()), "nonreentrant"))


def test_dropout_draws_once() -> None:
    def build() -> nn.Module:
        return net(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6), nn.Dropout(0.5))

    same(trained(build()), trained(build(), "body"))


class Counting(nn.Module):
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Counting.runs += 1
        return self.line(x).tanh()


def runs_of(work: Callable[[], Any]) -> int:
    before = Counting.runs
    work()
    return Counting.runs - before


def test_only_training_computes_again() -> None:
    model = net(Counting(), Counting())
    recompute(model, "body.0,body.1:2")
    assert runs_of(lambda: model(rows()).sum().backward()) > 3
    with torch.no_grad():
        assert runs_of(lambda: model(rows())) == 2
    model.eval()
    assert runs_of(lambda: model(rows()).sum().backward()) == 2
    model.train()
    model.body.eval()  # a part that is held in evaluation mode is trained all the same
    assert runs_of(lambda: model(rows()).sum().backward()) == 6


def test_a_module_that_runs_several_times() -> None:
    shared = Counting()
    plain = trained(net(shared, nn.Tanh(), shared))
    ours = net(copy.deepcopy(shared))
    ours.body.append(nn.Tanh()).append(ours.body[0])
    ours.head.load_state_dict(plain.head.state_dict())
    ours.zero_grad()
    same(plain, trained(ours, "body.0"))


def test_under_autocast() -> None:
    """Also on PyTorch 2.4 to 2.8, where a weight that was cast to be looked at would have no gradient afterwards."""

    def run(setting: str) -> nn.Module:
        model = net()
        recompute(model, setting)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(rows()).square().mean()
        loss.backward()
        return model

    same(run("none"), run("body"))
    for (name, one), (_, other) in zip(run("none").named_parameters(), run("body:2").named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0.05, atol=1e-3, msg=name)


class Many(nn.Module):
    """Gives what it computes in the form it is told."""

    def __init__(self, form: Callable[[torch.Tensor], Any], read: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.line, self.form = nn.Linear(6, 6), form
        self.read = read

    def forward(self, x: torch.Tensor, scale: float = 1.0, *, mask: Any = None) -> Any:
        out = self.line(x) * scale
        return self.form(out if mask is None else out * mask["rows"][0])


class Reading(nn.Module):
    def __init__(self, inner: Many) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = {"rows": [torch.arange(len(x)).view(-1, 1) + 1.0], "shared": torch.ones(1)}
        return self.inner.read(self.inner(x, 2.0, mask=mask))


def model_output(y: torch.Tensor) -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    return BaseModelOutput(last_hidden_state=y, hidden_states=(y, 2 * y))


FORMS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "dict": (lambda y: {"a": y, "n": 3}, lambda out: out["a"] * out["n"]),
    "OrderedDict": (lambda y: OrderedDict(a=y, b=2 * y), lambda out: out["a"] + out["b"]),
    "tuple": (lambda y: (y, None, y + 1), lambda out: out[0] + out[2]),
    "list": (lambda y: [y, [y]], lambda out: out[0] * out[1][0]),
    "namedtuple": (lambda y: Pair(y, 3 * y), lambda out: out.left + out.right),
    "model output": (model_output, lambda out: out.last_hidden_state + out.hidden_states[1]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chunk", ["", ":1", ":3"])
def test_outputs_and_arguments_in_every_form(form: str, chunk: str) -> None:
    def build() -> nn.Module:
        return net(Reading(Many(*FORMS[form])))

    same(trained(build()), trained(build(), f"body.0.inner{chunk}"))


class Mixing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(dim=0)


class Summing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


class Naming(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x, f"{len(x)} rows"


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.detach().mean(dim=0))
        return x + self.seen


REFUSED: list[tuple[Any, str, str]] = [
    (Mixing, "body.1:2", "body.1 gives other results for images one by one than for two together"),
    (Summing, "body.1:2", "body.1 returns a tensor of shape () for"),
    (Naming, "body.1:3", "body.1 returns a str that differs from chunk to chunk"),
    (InPlace, "body.1", "body.1 writes to its own input in place while it runs"),
    (Remembering, "body.1", "body.1 writes to its buffer seen while it runs"),
    (lambda: nn.BatchNorm1d(6), "body.1:2", "body.1 cannot run a few images at a time, since body.1 normalises over"),
]


@pytest.mark.parametrize(("layer", "setting", "message"), REFUSED, ids=[case[2][:30] for case in REFUSED])
def test_modules_that_cannot_be_computed_so(layer: Any, setting: str, message: str) -> None:
    with pytest.raises(OomproofError, match=re.escape(message)) as raised:
        trained(net(nn.Linear(6, 6), layer()), setting)
    assert "\n" not in str(raised.value)


def test_writing_in_place_to_what_is_ones_own_is_no_matter() -> None:
    def build() -> nn.Module:
        return net(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 6))

    same(trained(build()), trained(build(), "body"))
    with pytest.raises(JobError, match=r"body\.1 writes to its own input in place"):
        trained(build(), "body.1")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("boddy", "the model has no module 'boddy'; did you mean body"),
        ("zzz", "the model has no module 'zzz'; it has body, head"),
        ("", "the model has no module ''"),
        ("body,", "the model has no module ''"),
        ("body:0", "'body:0' must end in a number of images from 1 on, as in body:2"),
        ("body:-1", "must end in a number of images"),
        ("body:", "must end in a number of images"),
        ("body:x", "must end in a number of images"),
        ("body,body.0", "body and body.0 hold the same modules"),
        ("body.0,body", "body.0 and body hold the same modules"),
        ("head,head:2", "head and head hold the same modules"),
        (7, "checkpoint must be a text"),
    ],
)
def test_settings_that_are_none(setting: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        recompute(net(), setting)


def test_containers_that_are_never_run() -> None:
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2)])})
    with pytest.raises(InputError, match=r"layers is a ModuleList, which is never run itself; .* such as layers\.0"):
        recompute(model, "layers")


def test_the_check_leaves_no_trace() -> None:
    model = net(nn.Linear(6, 6), nn.Dropout(0.5))
    model.body[1].eval()
    recompute(model, "body:2")
    state = torch.get_rng_state()
    model(rows()).sum().backward()
    assert torch.equal(torch.get_rng_state(), state)  # two images were tried without drawing
    assert model.body[0].training and not model.body[1].training


def test_copies_and_files() -> None:
    model = net()
    recompute(model, "body:2")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.body[0].weight.zero_()
    assert not torch.equal(twin(rows()), model(rows()))  # the copy runs its own weights
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(rows()), model(rows()))
    assert set(model.state_dict()) == set(net().state_dict())


def test_names_of_blocks() -> None:
    with pytest.raises(InputError, match="no repeated blocks"):
        find_repeated_blocks(nn.Linear(2, 2))
    assert recompute(net(), "body,head:3") == ["body", "head"]
    assert recompute(net(), "none") == []


def peak(setting: str) -> int:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 6))

    model = net(*(block() for _ in range(4)))
    recompute(model, setting)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model(rows(4096)).square().mean().backward()
    live = most = 0
    events = profiler.profiler.kineto_results.events()
    for _, nbytes in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += nbytes
        most = max(most, live)
    return most


def test_it_saves_memory() -> None:
    wide = 4096 * 48 * 4
    everything, blocks = peak("none"), peak("body.0,body.1,body.2,body.3")
    assert everything > 8 * wide
    assert blocks < everything - 4 * wide  # of four blocks one at a time has its activations
    assert peak("body") > 8 * wide  # computed again as a whole they are all there at once
    assert peak("body:512") < everything - 5 * wide  # unless a few rows are computed at a time
