"""The lower figure is one: what a step takes on data where samplers find little."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import real_cpu
import torch
from test_samplers import SIDE, small_mask_rcnn, targets
from torchvision.models.detection.roi_heads import RoIHeads

import oomproof
from oomproof.changes.torch.training import OPTIMIZERS, Training
from oomproof.errors import JobError
from oomproof.memory.batch_spec import BatchSpec, ImageSpec
from oomproof.memory.cards.devices import find_device
from oomproof.memory.make_forecast import build_forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.settings import Settings
from oomproof.sources import open_job
from oomproof.sources.least_memory import FULL_ALONE, SPARSE, with_least
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest
from oomproof.trace.torch.gpu.sparse_samplers import has_samplers, sparse_samplers
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.tracer import Tracer

MASKS = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml"


def mask_samples(boxes: int) -> int:
    net, seen = small_mask_rcnn(), list[int]()
    net.roi_heads.mask_head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape[0]))
    with sparse_samplers(net):
        losses = net([torch.rand(3, SIDE, SIDE)], targets(boxes))
        sum(losses.values()).backward()
    return seen[0]


@pytest.mark.parametrize("boxes", [0, 1, 7])
def test_heads_see_the_annotated_boxes_alone(boxes: int) -> None:
    torch.manual_seed(0)
    plain = RoIHeads.assign_targets_to_proposals
    assert mask_samples(boxes) == boxes
    with Tracer() as tracer:
        tracer.ledger.start_step()
        assert mask_samples(boxes) == boxes
    assert RoIHeads.assign_targets_to_proposals is plain


def test_who_has_samplers() -> None:
    assert has_samplers(small_mask_rcnn()) and not has_samplers(torch.nn.Linear(1, 1))


def small_job(boxes: int) -> oomproof.TorchJob:
    return oomproof.TorchJob(
        small_mask_rcnn,
        lambda: ([torch.rand(3, SIDE, SIDE)] * 2, targets(boxes) * 2),
        lambda model, batch: sum(model(*batch).values()),
    )


@pytest.mark.parametrize("boxes", [1, 9])
def test_a_real_step_with_empty_samplers_is_not_below_it(boxes: int) -> None:
    job = small_job(boxes)
    request = TraceRequest(resolve(job, {}))
    full = job.trace(request)
    assert full.about.full_samplers and not full.about.least
    assert SPARSE not in full.about.notes
    about = with_least(job, request, full).about
    assert SPARSE in about.notes
    least = about.least
    assert 0 < least < 0.8 * full.peak().bytes
    # The trace is of a GPU's step; what the CPU takes beyond it only makes the real one larger.
    pieces = Pieces(job.model, job.batch, job.loss, OPTIMIZERS["sgd"])
    with patch.object(real_cpu, "samplers_filled", lambda model: nullcontext()):
        real = real_cpu.second_step(pieces, Training()).peak
    assert least * 0.99 <= real < full.peak().bytes


def test_expected_and_upper_figures_stay_where_they_are() -> None:
    job, device = small_job(2), find_device("8GiB")
    request = TraceRequest(resolve(job, {}), device)
    full = job.trace(request)
    plain, lower = (
        build_forecast(step, device, Runtime(), "", Settings()) for step in (full, with_least(job, request, full))
    )
    for level in ("allocated", "reserved", "on_device"):
        before, now = getattr(plain, level), getattr(lower, level)
        assert (now.expected, now.high) == (before.expected, before.high) and now.low < before.low
    assert oomproof.check(job, "8GiB").allocated == lower.allocated


def blueprint_least(request: TraceRequest) -> tuple[int, int]:
    job = open_job(MASKS)
    step = with_least(job, request, job.trace(request))
    return step.about.least, step.peak().bytes


def test_objects_that_nobody_has_counted_may_be_few() -> None:
    """A blueprint at a small size: with the default of 93 objects the least is one object, with a batch its own."""
    job = open_job(MASKS)
    settings = resolve(job, {"real": False, "image_size": "256x256", "SOLVER.IMS_PER_BATCH": 1})
    unknown, full = blueprint_least(TraceRequest(settings))
    given, _ = blueprint_least(TraceRequest(settings, batch=BatchSpec((ImageSpec(256, 256, 93),))))
    few, _ = blueprint_least(TraceRequest(settings, batch=BatchSpec((ImageSpec(256, 256, 1),))))
    assert unknown == few < given < full


def test_a_job_that_cannot_do_with_so_little_keeps_its_figure() -> None:
    job = small_job(1)
    request = TraceRequest(resolve(job, {}))
    full = job.trace(request)

    def refuse(*_: Any) -> Any:
        raise JobError("no regions")

    with patch.object(oomproof.TorchJob, "trace", refuse):
        step = with_least(job, request, full)
    assert step.about.least == 0 and FULL_ALONE in step.about.notes


def test_a_classifier_is_traced_once() -> None:
    job = open_job("torchvision:resnet18")
    request = TraceRequest(resolve(job, {"batch": 1, "image_size": "64x64"}))
    step = job.trace(request)
    assert with_least(job, request, step) is step
