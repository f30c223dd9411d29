"""Nothing of a trace outlives it: after a forecast, real steps run in the same process."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _device

from oomproof.changes.torch.training import Training
from oomproof.errors import JobError
from oomproof.frameworks.torch import FakeTensor
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step


@functools.lru_cache
def anchors(count: int) -> torch.Tensor:
    return torch.arange(count).float()


@functools.cache
def levels(count: int) -> list[dict[str, torch.Tensor]]:
    return [{"stride": torch.ones(count)}]


TABLE: dict[str, Any] = {}
FILLED: dict[str, Any] = {"kept": [1, 2, 3]}
LAST: list[Any] = ["first"]


def looked_up(count: int) -> torch.Tensor:
    if "positions" not in TABLE:
        TABLE["positions"] = (torch.linspace(0, 1, count), count)
    positions: torch.Tensor = TABLE["positions"][0]
    return positions


def beside_others(count: int) -> torch.Tensor:
    return FILLED.setdefault(count, torch.full((count,), 2.0))  # type: ignore[no-any-return, call-overload]


def in_a_list(count: int) -> torch.Tensor:
    if len(LAST) == 1:
        LAST.append([torch.ones(count)])
    return LAST[1][0]  # type: ignore[no-any-return]


class Positions:
    def __init__(self) -> None:
        self.made: dict[int, torch.Tensor] = {}

    def __call__(self, count: int) -> torch.Tensor:
        if count not in self.made:
            self.made[count] = torch.ones(count)
        return self.made[count]


class Keeps:
    """In attributes: of an object, with and without a dictionary, that is there before or is not; of a class."""

    __slots__ = ("__dict__", "slot")
    of_class: torch.Tensor | None = None

    def __init__(self) -> None:
        self.own: torch.Tensor | None = None
        self.pair: tuple[torch.Tensor, ...] | None = None
        self.slot: torch.Tensor | None = None

    def in_own(self, count: int) -> torch.Tensor:
        if self.own is None:
            self.own = torch.ones(count)
        return self.own

    def in_pair(self, count: int) -> torch.Tensor:
        if self.pair is None:
            self.pair = torch.ones(count), torch.zeros(count)
        return self.pair[0]

    def in_slot(self, count: int) -> torch.Tensor:
        if self.slot is None:
            self.slot = torch.ones(count)
        return self.slot

    def in_new(self, count: int) -> torch.Tensor:
        if not hasattr(self, "new"):
            self.new = torch.ones(count)
        return self.new

    def in_class(self, count: int) -> torch.Tensor:
        if Keeps.of_class is None:
            Keeps.of_class = torch.ones(count)
        return Keeps.of_class

    def in_new_of_class(self, count: int) -> torch.Tensor:
        if not hasattr(Keeps, "late"):
            Keeps.late = torch.ones(count)  # type: ignore[attr-defined]
        return Keeps.late  # type: ignore[attr-defined, no-any-return]


OF_MODULE: torch.Tensor | None = None


def in_a_global(count: int) -> torch.Tensor:
    global OF_MODULE  # noqa: PLW0603
    if OF_MODULE is None:
        OF_MODULE = torch.ones(count)
    return OF_MODULE


NAMES = SimpleNamespace(table=None)


def in_a_namespace(count: int) -> torch.Tensor:
    if NAMES.table is None:
        NAMES.table = torch.ones(count)
    return NAMES.table  # type: ignore[no-any-return]


def in_its_own_new_attribute(count: int) -> torch.Tensor:
    if not hasattr(in_its_own_new_attribute, "table"):
        in_its_own_new_attribute.table = torch.ones(count)  # type: ignore[attr-defined]
    return in_its_own_new_attribute.table  # type: ignore[attr-defined, no-any-return]


def in_its_own_attribute(count: int) -> torch.Tensor:
    if in_its_own_attribute.table is None:  # type: ignore[attr-defined]
        in_its_own_attribute.table = torch.ones(count)  # type: ignore[attr-defined]
    return in_its_own_attribute.table  # type: ignore[attr-defined, no-any-return]


in_its_own_attribute.table = None  # type: ignore[attr-defined]
OF_THREADS = threading.local()


def in_a_thread(count: int) -> torch.Tensor:
    if not hasattr(OF_THREADS, "table"):
        OF_THREADS.table = torch.ones(count)
    return OF_THREADS.table  # type: ignore[no-any-return]


class Refuses(OrderedDict[str, Any]):
    """Gives nothing away, and has its values as attributes too: as the outputs of transformers' models."""

    def __delitem__(self, key: str) -> None:
        raise Exception("You cannot use ``__delitem__`` on an output.")

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


REFUSES = Refuses()


def in_what_refuses(count: int) -> torch.Tensor:
    if "anchors" not in REFUSES:
        REFUSES["anchors"] = torch.ones(count)
    return REFUSES["anchors"]  # type: ignore[no-any-return]


OF_AN_OBJECT = Positions()
KEEPS = Keeps()

CACHES: dict[str, Callable[[int], torch.Tensor]] = {
    "lru_cache": anchors,
    "cache": lambda count: levels(count)[0]["stride"],
    "a dictionary": looked_up,
    "a dictionary with other things": beside_others,
    "a list": in_a_list,
    "a dictionary of an object": OF_AN_OBJECT,
    "an attribute": KEEPS.in_own,
    "a tuple in an attribute": KEEPS.in_pair,
    "a slot": KEEPS.in_slot,
    "a new attribute": KEEPS.in_new,
    "an attribute of a class": KEEPS.in_class,
    "a new attribute of a class": KEEPS.in_new_of_class,
    "a global": in_a_global,
    "a namespace": in_a_namespace,
    "a new attribute of a function": in_its_own_new_attribute,
    "an attribute of a function": in_its_own_attribute,
    "a thread's": in_a_thread,
    "a dictionary that refuses": in_what_refuses,
}


def step(model: nn.Module, cached: Callable[[int], torch.Tensor]) -> torch.Tensor:
    return model(torch.rand(4, 6) * cached(6)).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("cache", CACHES)
def test_caches_hold_nothing_of_a_trace(cache: str, fails: bool) -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        found = step(model, CACHES[cache])
        if fails:
            raise ValueError("their mistake")
        return found

    pieces = Pieces(lambda: nn.Linear(6, 2), lambda: torch.rand(4, 6), loss)
    for _ in range(2):  # a second trace finds nothing of the first either
        if fails:
            with pytest.raises(JobError, match="their mistake"):
                trace_step(pieces, Training())
        else:
            trace_step(pieces, Training())
    model = nn.Linear(6, 2)
    step(model, CACHES[cache]).backward()
    assert type(model.weight.grad) is torch.Tensor
    assert FILLED["kept"] == [1, 2, 3]
    assert LAST[0] == "first"


def test_what_a_cache_held_before_stays() -> None:
    before = anchors(7)
    trace_step(
        Pieces(lambda: nn.Linear(7, 2), lambda: torch.rand(4, 7), lambda m, x: m(x * anchors(7)).sum()), Training()
    )
    assert anchors(7) is before


class Remembers(nn.Module):
    """Keeps a mask from its first call on, as models with positions do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
        self.mask: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask = torch.ones(6)
        return self.body(x) * self.mask  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "training",
    [Training(), Training(checkpoint="body"), Training(freeze_batchnorm=True), Training(gradients="at_once")],
)
def test_a_model_that_was_lent_is_given_back(training: Training) -> None:
    model = Remembers().eval()
    weight, before = model.body[0].weight, {name: value.clone() for name, value in model.state_dict().items()}
    kinds = [type(module) for module in model.modules()]
    trace_step(Pieces(lambda: model, lambda: torch.rand(4, 6), lambda m, x: m(x).sum()), training)
    assert model.body[0].weight is weight
    assert weight.grad is None
    assert not any(module.training for module in model.modules())
    assert [type(module) for module in model.modules()] == kinds
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.train()
    model(torch.rand(4, 6)).sum().backward()
    assert weight.grad is not None
    assert not isinstance(model.mask, FakeTensor)


def test_a_default_device_is_followed_as_before() -> None:
    """PyTorch remembers its factories when a default is first used (torch 2.14), which a trace may be."""

    def make_model() -> nn.Module:
        with torch.device("cuda"):
            return nn.Linear(4, 4)

    _device._device_constructors.cache_clear()
    trace_step(Pieces(make_model, lambda: torch.rand(2, 4), lambda m, x: m(x).sum()), Training())
    with torch.device("meta"):
        assert {each.device.type for each in (torch.tensor(1), torch.as_tensor([1.0]), torch.ones(1))} == {"meta"}
