"""Whose fault it is: the user's, shown with their line; or oomproof's, a report that no search passes over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from oomproof.changes.torch.training import Training
from oomproof.errors import InternalError, JobError
from oomproof.trace.torch import ledger
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.shapes import operations
from oomproof.trace.torch.trace_step import trace_step
from oomproof.trace.user_code import blaming_user_code


def pieces(**changed: Any) -> Pieces:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x).sum()

    return Pieces(**{"model": lambda: nn.Linear(4, 2), "batch": lambda: torch.rand(3, 4), "loss": loss, **changed})


def trace(**changed: Any) -> None:
    trace_step(pieces(**changed), Training())


def lacks_an_argument(x: Any) -> torch.Tensor:
    return torch.rand(3, 4)


def misses_a_key() -> Any:
    return {"images": 1}["labels"]


def half_a_normalisation() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 2), nn.Unflatten(1, (2, 1)), nn.BatchNorm1d(2))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"loss": lambda model, x: model(x[:, :3]).sum()}, r"RuntimeError: .* at .*test_user_code\.py:\d+"),
        ({"batch": misses_a_key}, r"KeyError: 'labels' at .*test_user_code\.py:\d+: return \{"),
        ({"batch": lacks_an_argument}, r"TypeError: lacks_an_argument\(\) missing 1"),
        ({"loss": lambda model, x: model(x).sum().detach()}, "does not require grad"),
        ({"model": half_a_normalisation, "batch": lambda: torch.rand(1, 4)}, "Expected more than 1 value per channel"),
    ],
)
def test_a_failure_of_the_job_is_the_users(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=f"the job raised .*{said}"):
        trace(**changed)


@pytest.fixture
def forgetful() -> Any:
    """What the tracer knows of operations is looked up anew."""
    operations.look_up.cache_clear()
    yield
    operations.look_up.cache_clear()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize(
    ("where", "name", "what"),
    [
        ((operations, "_COSTLY", None), "trace/torch/shapes/operations.py", "TypeError"),  # beneath the user's line
        ((ledger, "KINDS", ()), "trace/torch/ledger.py", "ValueError"),  # between the job's parts
        ((operations, "schema_of", len), "trace/torch/shapes/operations.py", "TypeError"),
    ],
)
def test_a_fault_of_the_tracer_is_oomproofs(
    where: tuple[Any, str, Any], name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*where)
    with pytest.raises(InternalError) as raised:
        trace()
    first, *report = str(raised.value).split("\n  ")
    assert first.startswith(f"internal error: {what}: ") and "not of your job" in first
    assert 2 <= len(report) <= 4 and any(line.startswith(f"at oomproof/{name}:") for line in report)
    assert f"torch {torch.__version__.partition('+')[0]}" in report[-1]


def test_ctrl_c_stays_what_it_is() -> None:
    with pytest.raises(KeyboardInterrupt), blaming_user_code():
        raise KeyboardInterrupt


def test_what_is_not_an_exception_is_the_users_too() -> None:
    class Unusual(BaseException):
        pass

    with pytest.raises(JobError, match="Unusual: no"), blaming_user_code():
        raise Unusual("no")


def test_an_error_that_cannot_be_shown_is_named() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise ValueError

    with pytest.raises(JobError, match=r"the job raised Unspeakable at"), blaming_user_code():
        raise Unspeakable


def test_the_end_of_a_generator_is_the_users_where_they_raise_it() -> None:
    def leaves() -> nn.Module:
        raise GeneratorExit

    with pytest.raises(JobError, match=r"the job raised GeneratorExit at .*: raise GeneratorExit"):
        trace(model=leaves)
