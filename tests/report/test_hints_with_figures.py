"""What ``check`` advises carries figures, half precision too, and advises it only where it saves memory."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="a job is traced")
import torch
from torch import nn

import oomproof
from oomproof.api import check as checking


def job() -> oomproof.TorchJob:
    def model() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 8, 3))

    def batch() -> torch.Tensor:
        return torch.zeros(16, 3, 256, 256)

    return oomproof.TorchJob(model=model, batch=batch, loss=lambda net, given: net(given).float().mean())


def test_half_precision_has_its_figure() -> None:
    forecast = oomproof.check(job(), on="600MiB")
    hint = next(each for each in forecast.hints if each.knob == "precision")
    assert hint.saves is not None and hint.saves > 64 << 20
    half = oomproof.check(job(), on="600MiB", **hint.settings)
    assert forecast.excess - half.excess == hint.saves


def test_half_precision_that_saves_nothing_is_not_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "WORTH_SAYING", 1 << 40)
    assert "precision" not in [hint.knob for hint in oomproof.check(job(), on="600MiB").hints]


def test_a_long_trace_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "QUICKLY_TRACED", 1)
    hint = next(each for each in oomproof.check(job(), on="600MiB").hints if each.knob == "precision")
    assert hint.saves is None
