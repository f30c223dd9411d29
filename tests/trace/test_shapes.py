"""What the tracer remembers of shapes changes nothing but the time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from oomproof.memory.timeline import Timeline
from oomproof.run.torch.training import OPTIMIZERS, Training
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.trace.torch import shapes, tracer
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.shapes import Shapes
from oomproof.trace.torch.step import trace_step
from oomproof.trace.torch.tracer import Tracer


def same(one: Timeline, other: Timeline) -> bool:
    columns = ("born", "died", "bytes", "kind", "phase", "owner", "op")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


def without_memory(make: Callable[[], Timeline], monkeypatch: pytest.MonkeyPatch) -> Timeline:
    with monkeypatch.context() as patch:
        patch.setattr(Shapes, "key", lambda *_: None)
        patch.setattr(tracer, "VIEWS", {torch.ops.aten.view.default: torch.ops.aten.view.default})
        return make()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fasterrcnn_mobilenet_v3_large_320_fpn", "swin_t", "deeplabv3_mobilenet_v3_large"])
def test_traces_are_the_same_without_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = open_job(f"torchvision:{name}")
    settings = resolve(job, {"batch": 2})

    def make() -> Timeline:
        return job.trace(settings, lambda text: None)

    assert same(make(), without_memory(make, monkeypatch))


class Repeats(torch.nn.Module):
    """Types, strides, scalars and the default type: the same operation on arguments that differ in one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

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
        return self.layer(x).sum() + sum(each.float().sum() for each in kept)


def test_what_looks_alike_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Timeline:
        pieces = Pieces(Repeats, lambda: torch.rand(8, 8), lambda net, x: net(x), OPTIMIZERS["sgd"])
        return trace_step(pieces, Training(), dialect="cpu")

    assert same(make(), without_memory(make, monkeypatch))


def test_a_view_is_never_remembered_as_new_memory() -> None:
    with Tracer():
        for _ in range(2):
            x = torch.empty(4, 4)
            assert torch.ops.aten._unsafe_view(x, (16,)).untyped_storage()._cdata == x.untyped_storage()._cdata
            assert x.view(2, 8).untyped_storage()._cdata == x.untyped_storage()._cdata
        assert not any(key[0] is torch.ops.aten._unsafe_view.default for key in shapes._SEEN)
        with pytest.raises(RuntimeError, match=r"shape '\[3, 5\]' is invalid"):
            x.view(3, 5)
