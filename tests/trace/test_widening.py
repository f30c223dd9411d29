"""Normalisation with frozen numbers in fp32 undoes half precision: the trace knows, and the report says why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

import oomproof
from oomproof import TorchJob
from oomproof.changes.torch.training import Training
from oomproof.memory.timeline import Timeline
from oomproof.memory.widening import stays_wide
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

NORMS: dict[str, Any] = {"frozen": FrozenBatchNorm2d, "trained": nn.BatchNorm2d, "none": lambda _: nn.Identity()}


def net(norm: str) -> nn.Module:
    blocks = [(nn.Conv2d(16, 16, 3, padding=1), NORMS[norm](16), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *(layer for block in blocks for layer in block))


def batch() -> torch.Tensor:
    return torch.rand(8, 3, 128, 128)


def loss(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    return model(images).float().mean()  # type: ignore[no-any-return]


def traced(norm: str, precision: str) -> Timeline:
    return trace_step(Pieces(lambda: net(norm), batch, loss), Training(precision=precision))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("norm", NORMS)
def test_only_frozen_numbers_widen(norm: str, precision: str) -> None:
    step = traced(norm, precision)
    assert stays_wide(step.about, step) == (norm == "frozen")
    told = [note for note in step.about.notes if "FrozenBatchNorm2d" in note and "more memory than fp32" in note]
    assert bool(told) == (norm == "frozen" and precision != "fp32")


def test_the_note_is_true() -> None:
    assert traced("frozen", "fp16").peak().bytes > traced("frozen", "fp32").peak().bytes
    assert traced("trained", "fp16").peak().bytes < 0.8 * traced("trained", "fp32").peak().bytes


@pytest.mark.parametrize("norm", ["frozen", "trained"])
def test_check_does_not_advise_what_takes_more(norm: str) -> None:
    job = TorchJob(model=lambda: net(norm), batch=batch, loss=loss)
    forecast = oomproof.check(job, on="560MiB")
    assert not forecast.fits
    assert any(hint.knob == "precision" for hint in forecast.hints) == (norm == "trained")
