"""Networks of a fixed input, at their own and at other sizes: the forecast against the real CPU allocator while the
code that ``fit --write`` prints is what is trained."""

from __future__ import annotations

from typing import Any

import pytest
from real_cpu import second_step

from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import OPTIMIZERS, training_from
from oomproof.memory.cards.devices import find_device
from oomproof.sources.settings import resolve
from oomproof.sources.torchvision.code import model_code
from oomproof.sources.torchvision.job import open_torchvision
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step
from thorough import thorough_but

SSD, LITE = "ssd300_vgg16", "ssdlite320_mobilenet_v3_large"
SIZES = [(SSD, (300, 300)), (SSD, (512, 512)), (SSD, (320, 448)), (LITE, (320, 320)), (LITE, (512, 512))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), thorough_but([(LITE, (320, 320))], SIZES))
def test_the_printed_network_takes_what_was_forecast(name: str, size: tuple[int, int]) -> None:
    job = open_torchvision(name)
    settings = resolve(job, {"batch": 2, "weights": "none", "image_size": size})
    training, made = training_from(settings), job.with_settings(settings)
    pasted: dict[str, Any] = {}

    def build() -> Any:
        exec("\n".join(model_code(name, job.task, settings)), pasted)
        return pasted["model"]

    def loss(model: Any, batch: Any) -> Any:
        return pasted["loss"](model, batch)

    ours = Pieces(made.model, made.batch, made.loss, OPTIMIZERS["sgd"])
    theirs = Pieces(build, made.batch, loss, OPTIMIZERS["sgd"])

    traced = forecast_step(trace_step(ours, training, dialect="cpu"), find_device("64GiB"), settings)
    real = second_step(theirs, training).peak

    assert traced.allocated.expected == pytest.approx(real, rel=0.01), (traced.phase, traced.owner, traced.op)
    assert traced.allocated.low <= real <= traced.allocated.high
