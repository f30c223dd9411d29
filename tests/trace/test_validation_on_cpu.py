"""What comes between epochs, traced and for real: full-size masks, predictions kept, gradients left on by mistake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from real_cpu import validation

import oomproof
from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import OPTIMIZERS, Training, training_from
from oomproof.memory.cards.devices import find_device
from oomproof.memory.forecast import Forecast
from oomproof.memory.validation import Validation
from oomproof.sources.settings import resolve
from oomproof.sources.torchvision.job import open_torchvision
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """oneDNN takes other kernels for a single thread, which the CPU's prices do not know; tests before these may have
    left one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


WAYS = [Validation(), Validation(keeps=1), Validation(keeps=5), Validation(grad=True)]


def small_net() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 1)
    )


SMALL = Pieces(
    small_net,
    lambda: torch.rand(4, 3, 64, 64),
    lambda net, images: net(images).square().mean(),
    OPTIMIZERS["adam"],
    validate=lambda net, images: net(images),
)


def forecast(pieces: Pieces, training: Training, how: Validation) -> Forecast:
    settings = resolve(open_torchvision("resnet18"), {})
    return forecast_step(trace_step(pieces, training, dialect="cpu", validation=how), find_device("64GiB"), settings)


@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("ema", [False, True])
def test_a_small_net(how: Validation, ema: bool) -> None:
    training = Training(ema=ema)
    assert forecast(SMALL, training, how).allocated.expected == pytest.approx(
        validation(SMALL, training, how).peak, rel=0.01
    )


def test_what_costs_more() -> None:
    plain, kept, grad, ema = (
        forecast(SMALL, training, how).allocated.expected
        for training, how in (
            (Training(), Validation()),
            (Training(), Validation(keeps=5)),
            (Training(), Validation(grad=True)),
            (Training(ema=True), Validation()),
        )
    )
    predictions = 4 * 8 * 64 * 64 * 4
    assert kept == plain + 3 * predictions  # two are alive at the peak anyway
    assert grad > plain and ema > plain


@pytest.mark.thorough
@pytest.mark.slow
def test_masks_at_full_size() -> None:
    job = open_torchvision("maskrcnn_resnet50_fpn")
    settings = resolve(job, {"batch": 1, "image_size": "192x256", "weights": "none"})
    made = job.with_settings(settings)
    assert made.validation_batch is not None
    pieces = Pieces(made.model, made.validation_batch, made.loss, OPTIMIZERS["sgd"], None, made.validate)
    training, how = training_from(settings), Validation(keeps=3)
    traced = forecast(pieces, training, how)
    assert traced.allocated.expected == pytest.approx(validation(pieces, training, how).peak, rel=0.01)
    assert traced.phase == "validation"


def test_a_job_that_does_not_say_how_it_validates() -> None:
    job = oomproof.TorchJob(small_net, SMALL.batch, SMALL.loss)
    with pytest.raises(oomproof.InputError, match="does not say how it validates"):
        oomproof.check(job, "8GiB", validate=True)


def test_a_validation_that_decides() -> None:
    """Predictions of a hundred batches kept on the device: training fits, the run does not."""
    job = oomproof.TorchJob(small_net, SMALL.batch, SMALL.loss, validate=SMALL.validate)
    plain = oomproof.check(job, "8GiB")
    assert plain.validation is not None and plain.decides == "training" and plain.fits
    kept = oomproof.check(job, "8GiB", validate=Validation(keeps=20_000))
    assert kept.decides == "validation" and kept.on_device_outcome == "fits"
    assert kept.outcome == kept.validation_outcome == "does not fit"
    assert oomproof.check(job, "8GiB", validate=False).validation is None
