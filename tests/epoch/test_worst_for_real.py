"""A crowded dataset whose typical batch fits and whose worst does not: both as PyTorch's own CPU allocator has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_detector import make_dataset

import oomproof
from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import OPTIMIZERS, training_from
from oomproof.memory.batch_spec import BatchSpec
from oomproof.memory.cards.devices import find_device
from oomproof.sources.settings import resolve
from oomproof.sources.torchvision.job import open_torchvision
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

sys.path.append(str(Path(__file__).parent.parent / "trace"))
from real_cpu import second_step

GIVEN = {"batch": 2, "image_size": "256x352", "classes": 3, "weights": "none", "roi_samples": 64}
CROWDED = make_dataset([(96, 128)] * 30 + [(128, 96)] * 10, [*range(1, 9)] * 5)
CROWD = {7: 900, 23: 800, 31: 850}


def crowded() -> oomproof.Dataset:
    objects = CROWDED.objects.tolist()
    for place, count in CROWD.items():
        objects[place] = count
    return make_dataset(list(zip(CROWDED.heights.tolist(), CROWDED.widths.tolist(), strict=True)), objects)


@pytest.mark.thorough  # two minutes of processor time
def test_a_crowd_breaks_what_fits_on_average_and_a_real_run_agrees() -> None:
    job = open_torchvision("maskrcnn_resnet50_fpn")
    usual = oomproof.check(job, "24GiB", data=crowded(), **GIVEN).epoch
    assert usual is not None
    between = (usual.typical.on_device.high + usual.worst.on_device.expected) // 2
    assert usual.typical.on_device.high < between < usual.worst.on_device.expected
    answer = oomproof.check(job, f"{between / 2**30:.3f}GiB", data=crowded(), **GIVEN)
    assert answer.outcome == "does not fit" and answer.epoch is not None
    assert answer.epoch.typical.outcome == "fits"
    names = {image.name for image in answer.epoch.worst.spec.images}
    assert names == {"7.jpg", "31.jpg"}  # upright and lying: padded to a square
    assert answer.epoch.worst.padded == (352, 352)
    assert 0 < answer.epoch.chance < 1
    dropped = next(remedy for remedy in answer.epoch.remedies if remedy.kind == "drop")
    assert 1 <= dropped.count <= 3 and set(dropped.images) <= {f"{place}.jpg" for place in CROWD}
    for batch in (answer.epoch.worst, answer.epoch.typical):
        assert_as_measured(batch.spec)


def assert_as_measured(spec: BatchSpec) -> None:
    job = open_torchvision("maskrcnn_resnet50_fpn")
    settings = resolve(job, GIVEN)
    made = job.with_settings(settings, spec)
    pieces = Pieces(made.model, made.batch, made.loss, made.optimizer or OPTIMIZERS["sgd"])
    training = training_from(settings)
    traced = forecast_step(trace_step(pieces, training, dialect="cpu"), find_device("64GiB"), settings)
    real = second_step(pieces, training).peak
    assert traced.allocated.expected == pytest.approx(real, rel=0.01)
    assert traced.allocated.low <= real <= traced.allocated.high
