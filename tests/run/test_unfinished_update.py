"""Memory runs out in the middle of Adam's update, without a mode of PyTorch, which would count writes otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from failing_allocations import WORDS
from torch import nn, optim

from oomproof.run.guard import protected_update
from oomproof.run.guard.failures import CaughtFailure
from oomproof.run.guard.protected_update import ProtectedUpdate, UpdateFailed

FORMS: dict[str, Any] = {
    "AdamW": lambda p: optim.AdamW(p, lr=0.01, foreach=False),
    "AdamW, list-at-once": lambda p: optim.AdamW(p, lr=0.01, foreach=True),
    "Adam, decay": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1, foreach=False),
    "Adam, decay, list-at-once": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1, foreach=True),
    "two groups": lambda p: optim.AdamW([{"params": list(p)[:2]}, {"params": list(p)[2:], "weight_decay": 0.0}]),
}
OPERATIONS = {"add": torch.Tensor, "sqrt": torch.Tensor, "__truediv__": torch.Tensor}
LIST_OPERATIONS = {"_foreach_add": torch, "_foreach_sqrt": torch}


class Failing:
    """The n-th call of operations that allocate in an update fails; ``then`` so many more do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, then: int = 0) -> None:
        self.count, self.failed = 0, 0
        for name, owner in {**OPERATIONS, **LIST_OPERATIONS}.items():
            monkeypatch.setattr(owner, name, self._failing(getattr(owner, name), at, then))

    def _failing(self, plain: Any, at: int, then: int) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            self.count += 1
            if at < self.count <= at + 1 + then:
                self.failed += 1
                raise torch.cuda.OutOfMemoryError(WORDS)
            return plain(*given, **named)

        return call


def parameters() -> list[nn.Parameter]:
    noise = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.rand(5, generator=noise)) for _ in range(4)]


def update(optimizer: optim.Optimizer, some: list[nn.Parameter], step: int) -> None:
    noise = torch.Generator().manual_seed(step)
    for parameter in some:
        parameter.grad = torch.rand(5, generator=noise)
    optimizer.step()


def everything(optimizer: optim.Optimizer, some: list[nn.Parameter]) -> list[torch.Tensor]:
    state = [optimizer.state[p][name] for p in some for name in ("step", "exp_avg", "exp_avg_sq")]
    return [each.detach().clone() for each in [*some, *state]]


@pytest.fixture(autouse=True)
def _nothing_to_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage of other tests need not be looked through after each failure."""
    monkeypatch.setattr(protected_update, "free_memory", lambda device: None)


@pytest.mark.parametrize("then", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_an_update_that_fails_anywhere_is_the_same_update(
    form: str, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = parameters()
    reference = FORMS[form](plain)
    for step in range(3):
        update(reference, plain, step)
    expected = everything(reference, plain)
    at, failed = 0, True
    while failed:
        some = parameters()
        optimizer = FORMS[form](some)
        guarded = ProtectedUpdate(optimizer, torch.device("cpu"))
        update(optimizer, some, 0)
        monkeypatch.setattr(guarded, "_update", None)  # which copies: not from the second step on
        with monkeypatch.context() as within:
            failing = Failing(within, at, then)
            update(optimizer, some, 1)
            failed = failing.failed > 0
        update(optimizer, some, 2)
        for one, other in zip(everything(optimizer, some), expected, strict=True):
            assert torch.equal(one, other), at
        at += 1
    assert at > 1  # the last one went through


def test_an_update_that_never_fits_says_that_parameters_are_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    some = parameters()
    optimizer = FORMS["AdamW"](some)
    ProtectedUpdate(optimizer, torch.device("cpu"))
    update(optimizer, some, 0)
    Failing(monkeypatch, 2, then=99)
    with pytest.raises(UpdateFailed, match="some parameters were updated") as raised:
        update(optimizer, some, 1)
    assert not raised.value.intact and isinstance(raised.value.failure, CaughtFailure)
