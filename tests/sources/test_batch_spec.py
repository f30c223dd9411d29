"""Batches by specification: images of different sizes, with different numbers of objects."""

from __future__ import annotations

import pytest

import oomproof
from oomproof.memory.batch_spec import BatchSpec, ImageSpec, make_up
from oomproof.memory.timeline import KINDS, Timeline
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest
from thorough import thorough_but

SMALL = {
    "torchvision:retinanet_resnet50_fpn": {"batch": 2, "image_size": "128x160", "boxes": 3},
    "COCO-Detection/retinanet_R_50_FPN_1x.yaml": {"batch": 2, "image_size": "128x160", "boxes": 3},
}


def traced(name: str, batch: BatchSpec | None = None) -> Timeline:
    job = open_job(name)
    return job.trace(TraceRequest(resolve(job, SMALL[name]), batch=batch))


def activations(step: Timeline) -> int:
    return int(step.bytes[step.kind == KINDS.index("activation")].sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_what_is_made_up_is_a_specification_too(name: str) -> None:
    plain, same = traced(name), traced(name, make_up(2, (128, 160), 3))
    assert plain.bytes.tolist() == same.bytes.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(["torchvision:retinanet_resnet50_fpn"], SMALL))
def test_a_crowded_or_larger_image_counts(name: str) -> None:
    usual = ImageSpec(128, 160, 3)
    plain = activations(traced(name))
    upright = BatchSpec((usual, ImageSpec(160, 128, 3)))  # both are padded to the larger of their sides
    assert activations(traced(name, upright)) > 1.1 * plain
    assert activations(traced(name, BatchSpec((usual, usual, usual)))) > 1.3 * plain
    crowded = traced(name, BatchSpec((usual, ImageSpec(128, 160, 300, "crowd.jpg"))))
    assert crowded.bytes.sum() > traced(name).bytes.sum()


def test_jobs_that_make_their_own_batches_say_so() -> None:
    spec = make_up(2, (64, 64), 1)
    for name in ("torchvision:resnet18", "torchvision:fcn_resnet50"):
        job = open_job(name)
        with pytest.raises(oomproof.InputError, match="takes batches of equal images"):
            job.trace(TraceRequest(resolve(job, {}), batch=spec))
    own = oomproof.TorchJob(lambda: None, lambda: None, lambda model, batch: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(oomproof.InputError, match="makes its batches itself"):
        own.trace(TraceRequest(resolve(own, {}), batch=spec))
