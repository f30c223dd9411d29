"""What the tracer remembers of shapes changes nothing but the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from oomproof.changes.torch.training import OPTIMIZERS, Training
from oomproof.memory.timeline import Timeline
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest
from oomproof.trace.torch import tracer
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.shapes import shapes
from oomproof.trace.torch.shapes.operations import OpFacts, look_up
from oomproof.trace.torch.trace_step import trace_step
from oomproof.trace.torch.tracer import Tracer
from thorough import thorough_but


def same(one: Timeline, other: Timeline) -> bool:
    parts = [(one, other), (one.calls, other.calls), (one.work, other.work)]
    columns = [(getattr(a, f.name), getattr(b, f.name)) for a, b in parts for f in fields(a)]
    arrays = [pair for pair in columns if isinstance(pair[0], np.ndarray)]
    told = (one.owners, one.ops, one.calls.specs, one.modules) == (
        other.owners,
        other.ops,
        other.calls.specs,
        other.modules,
    )
    return told and one.shapes == other.shapes and len(arrays) == 20 and all(np.array_equal(a, b) for a, b in arrays)


def without_memory(make: Callable[[], Timeline], monkeypatch: pytest.MonkeyPatch) -> Timeline:
    def by_pytorch(func: Any) -> OpFacts:
        facts = look_up(func)
        return facts if func is torch.ops.aten.view.default else replace(facts, view=None)

    with monkeypatch.context() as patch:
        patch.setattr(tracer, "key_of", lambda *_: None)
        patch.setattr(tracer, "look_up", by_pytorch)
        return make()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    thorough_but(
        ["fasterrcnn_mobilenet_v3_large_320_fpn"],
        ["fasterrcnn_mobilenet_v3_large_320_fpn", "swin_t", "deeplabv3_mobilenet_v3_large"],
    ),
)
def test_traces_are_the_same_without_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = open_job(f"torchvision:{name}")
    settings = resolve(job, {"batch": 2})

    def make() -> Timeline:
        return job.trace(TraceRequest(settings))

    assert same(make(), without_memory(make, monkeypatch))


class Still(torch.nn.BatchNorm2d):
    """Is never trained."""

    def train(self, mode: bool = True) -> Still:
        super().train(False)
        return self


class Repeats(torch.nn.Module):
    """Types, strides, scalars and the default type: the same operation on arguments that differ in one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.conv = torch.nn.Linear(8, 8), torch.nn.Conv2d(1, 1, 3, padding=1)
        self.wide = torch.nn.Conv2d(1, 1, 3, padding=2, dilation=2)
        self.first = torch.nn.BatchNorm2d(1)
        self.still = Still(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for _ in range(2):
            kept += [x.clone(), x.t().clone(), x.half().clone(), x.double() * 2]
            kept += [x.sum(0), x.sum(1), x.sum(0, keepdim=True), torch.ones(3), x > 0.5, (x > 0.5) + 1, (x > 0.5) + 1.0]
            kept += list(torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False))
            kept += [
                x.clone().mul_(2),
                x.clone().mul_(x[0]),
                x.t().clone().mul_(2),
                torch.tensor([1.0, 2.0]),
                torch.tensor(3),
            ]
            kept += [torch.tensor(3) * 2, torch.tensor(2.0) * x, x[torch.tensor([1, 3])], x[:, torch.tensor([1, 3])]]
            kept += [torch.ops.aten._unsafe_view(x.clone(), (8, 8, 1)), torch.max(x, 1)[0], torch.nonzero(x > 2)]
            torch.set_default_dtype(torch.float64)
            kept.append(torch.ones(3))
            torch.set_default_dtype(torch.float32)
        image = x.reshape(1, 1, 8, 8)
        kept += [self.first(self.conv(image)), self.still(self.wide(image)), self.wide(self.conv(image))]
        return self.layer(x).sum() + sum(each.float().sum() for each in kept)


def test_what_looks_alike_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Timeline:
        pieces = Pieces(Repeats, lambda: torch.rand(8, 8), lambda net, x: net(x), OPTIMIZERS["sgd"])
        return trace_step(pieces, Training(), dialect="cpu")

    traced = make()
    assert same(traced, without_memory(make, monkeypatch))
    dilations = [json.loads(spec)["dilation"] for spec in traced.calls.specs if "dilation" in spec]
    assert sorted(dilations) == [[1, 1]] * 2 + [[2, 2]] * 3  # the last: backward with and without the image's gradient
    assert {call.path: call.separable for call in traced.modules if call.path in ("first", "still")} == {
        "first": False,
        "still": True,
    }


def test_a_view_is_never_remembered_as_new_memory() -> None:
    with Tracer():
        for _ in range(2):
            x = torch.empty(4, 4)
            assert torch.ops.aten._unsafe_view(x, (16,)).untyped_storage()._cdata == x.untyped_storage()._cdata
            assert x.view(2, 8).untyped_storage()._cdata == x.untyped_storage()._cdata
        assert not any(key[0].name == "_unsafe_view" for key in shapes._MEMORY)
        with pytest.raises(RuntimeError, match=r"shape '\[3, 5\]' is invalid"):
            x.view(3, 5)


def test_operations_that_give_no_tensor_are_recalled_too() -> None:
    with Tracer():
        one, other = torch.empty(3), torch.empty(4)
        for _ in range(2):
            assert torch.ops.aten.is_same_size(one, one) is True
            assert torch.ops.aten.is_same_size(one, other) is False
            assert torch.ops.aten._foreach_zero_([one, other]) is None
