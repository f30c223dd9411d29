"""A trace is exact: the forecast of a second training step against PyTorch's own CPU allocator in a real one.

Everything is measured, weights and batch included. The bound is 1 %, and the range must cover the real peak.
"""

from __future__ import annotations

import pytest
from real_cpu import second_step

from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import OPTIMIZERS, training_from
from oomproof.memory.cards.devices import find_device
from oomproof.sources.settings import resolve
from oomproof.sources.torch.job import TorchJob
from oomproof.sources.torchvision.job import open_torchvision
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step
from thorough import thorough_but

MODELS = {
    "resnet50": {"batch": 8, "image_size": (160, 160)},
    "mobilenet_v3_large": {"batch": 16, "image_size": (160, 160)},
    "vgg16": {"batch": 4, "image_size": (160, 160), "optimizer": "adam"},
    "convnext_tiny": {"batch": 4, "image_size": (160, 160)},
    "vit_b_16": {"batch": 4, "optimizer": "adamw"},
    "efficientnet_b0": {"batch": 8, "image_size": (160, 160), "zero_grad": "keep"},
    "deeplabv3_resnet50": {"batch": 2, "image_size": (160, 160)},
    "fcn_resnet50": {"batch": 2, "image_size": (160, 160)},
    "fasterrcnn_resnet50_fpn": {"batch": 1, "image_size": (256, 320), "weights": "none", "boxes": 20},
    "maskrcnn_resnet50_fpn": {"batch": 1, "image_size": (192, 256), "weights": "none"},
    "keypointrcnn_resnet50_fpn": {"batch": 1, "image_size": (128, 192), "classes": 2, "weights": "none"},
    "retinanet_resnet50_fpn": {"batch": 1, "image_size": (256, 320), "weights": "none"},
    "fcos_resnet50_fpn": {"batch": 1, "image_size": (256, 320), "optimizer": "adamw", "weights": "none"},
    "ssd300_vgg16": {"batch": 2, "weights": "none"},
    "ssdlite320_mobilenet_v3_large": {"batch": 4, "weights": "none"},
}
QUICK = ("mobilenet_v3_large",)
PEAKS_IN_ROI_HEADS = ("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn")


def pieces_of(job: TorchJob) -> Pieces:
    return Pieces(job.model, job.batch, job.loss, job.optimizer or OPTIMIZERS["sgd"], job.step)


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(QUICK, MODELS))
def test_second_step_as_the_real_allocator_has_it(name: str) -> None:
    job = open_torchvision(name)
    settings = resolve(job, MODELS[name])
    pieces, training = pieces_of(job.with_settings(settings)), training_from(settings)

    traced = forecast_step(trace_step(pieces, training, dialect="cpu"), find_device("64GiB"), settings)
    real = second_step(pieces, training).peak

    assert traced.allocated.expected == pytest.approx(real, rel=0.01), (traced.phase, traced.owner, traced.op)
    assert traced.allocated.low <= real <= traced.allocated.high
    assert ("roi_heads" in traced.owner) == (name in PEAKS_IN_ROI_HEADS)
