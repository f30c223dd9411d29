"""ViTDet's blueprint against PyTorch's own CPU allocator."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from real_cpu import second_step

from oomproof.changes.torch.training import Training
from oomproof.memory.cards.devices import find_device
from oomproof.memory.make_forecast import build_forecast
from oomproof.memory.runtime import Runtime
from oomproof.sources.detectron2.blueprint.vit import ViT
from oomproof.sources.detectron2.vitdet.job import VitdetJob, open_vitdet
from oomproof.sources.detectron2.vitdet.shape import VitShape
from oomproof.sources.settings import resolve
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

SMALL = {
    "dataloader.train.total_batch_size": 1,
    "model.roi_heads.batch_size_per_image": 16,
    "model.proposal_generator.post_nms_topk": 100,
    "model.proposal_generator.pre_nms_topk": 200,
    "image_size": (160, 160),
    "boxes": 5,
}


def small_job(name: str) -> VitdetJob:
    """A shallow transformer: two blocks with windows, padded from 10 tokens a side to 14, and two global ones."""
    job = open_vitdet(name)
    shape = replace(job.config.shape, width=96, heads=3, depth=4, global_blocks=2)
    return replace(job, config=replace(job.config, shape=shape))


def pieces_of(job: VitdetJob) -> Pieces:
    made, _ = job.torch_pieces(resolve(job, SMALL))
    assert made.optimizer is not None
    return Pieces(made.model, made.batch, made.loss, made.optimizer)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [
        ("COCO/mask_rcnn_vitdet_b_100ep", "none"),
        ("LVIS/cascade_mask_rcnn_vitdet_b_100ep", "backbone.net.blocks.0,backbone.net.blocks.1"),
    ],
)
def test_a_step_as_the_real_allocator_has_it(name: str, checkpoint: str) -> None:
    pieces, training = pieces_of(small_job(name)), Training(zero_grad="before_backward", checkpoint=checkpoint)
    traced = build_forecast(trace_step(pieces, training, dialect="cpu"), find_device("64GiB"), Runtime(), name, {})
    assert traced.allocated.expected == pytest.approx(second_step(pieces, training).peak, rel=0.01), traced.owner


@pytest.mark.slow
def test_tables_of_scores_as_the_real_allocator_has_them() -> None:
    """The transformer by itself, with little to update: its peak is where a global block attends."""
    shape = VitShape(width=64, depth=4, heads=4, drop_path=0.2, side=512, global_blocks=2)
    pieces = Pieces(
        lambda: ViT(shape), lambda: torch.rand(1, 3, 512, 512), lambda model, images: model(images).square().mean()
    )
    step = trace_step(pieces, Training(), dialect="cpu")
    assert ".attn" in step.peak().owner
    traced = build_forecast(step, find_device("64GiB"), Runtime(), "ViT", {})
    assert traced.allocated.expected == pytest.approx(second_step(pieces, Training()).peak, rel=0.01)
