"""Samplers are as full as in a trained network."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.ops import MultiScaleRoIAlign

from oomproof.trace.torch.gpu.samplers import _jitter_boxes, samplers_filled
from oomproof.trace.torch.tracer import Tracer

SIDE = 64


def small_mask_rcnn() -> MaskRCNN:
    body = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU())
    body.out_channels = 8
    pools = [MultiScaleRoIAlign(["0"], size, 2) for size in (3, 3)]
    return MaskRCNN(
        body,
        min_size=SIDE,
        max_size=SIDE,
        rpn_anchor_generator=AnchorGenerator(((16, 32),), ((1.0,),)),
        box_roi_pool=pools[0],
        mask_roi_pool=pools[1],
        box_head=nn.Sequential(nn.Flatten(), nn.Linear(72, 16)),
        box_predictor=torchvision.models.detection.faster_rcnn.FastRCNNPredictor(16, 3),
        mask_head=nn.Conv2d(8, 8, 1),
        mask_predictor=torchvision.models.detection.mask_rcnn.MaskRCNNPredictor(8, 8, 3),
    ).train()


def targets(boxes: int) -> list[dict[str, torch.Tensor]]:
    corner = torch.rand(boxes, 2) * 30
    return [
        {
            "boxes": torch.cat([corner, corner + 25], dim=1),
            "labels": torch.ones(boxes, dtype=torch.int64),
            "masks": torch.zeros(boxes, SIDE, SIDE, dtype=torch.uint8),
        }
    ]


def mask_samples(boxes: int) -> int:
    """How many samples the mask head of one image sees in a training step."""
    net, seen = small_mask_rcnn(), list[int]()
    net.roi_heads.mask_head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape[0]))
    with samplers_filled(net):
        losses = net([torch.rand(3, SIDE, SIDE)], targets(boxes))
        sum(losses.values()).backward()
    return seen[0]


@pytest.mark.parametrize("boxes", [1, 5, 20])
def test_foreground_fills_its_share(boxes: int) -> None:
    torch.manual_seed(0)
    assert mask_samples(boxes) == 128
    with Tracer() as tracer:
        tracer.ledger.start_step()
        assert mask_samples(boxes) == 128


def test_more_objects_than_room() -> None:
    torch.manual_seed(0)
    with Tracer() as tracer:
        tracer.ledger.start_step()
        assert mask_samples(150) == 128


def test_without_objects() -> None:
    assert mask_samples(0) == 0
    with Tracer() as tracer:
        tracer.ledger.start_step()
        assert mask_samples(0) == 0


def test_copies_are_foreground() -> None:
    torch.manual_seed(0)
    boxes = targets(7)[0]["boxes"]
    copies = _jitter_boxes(boxes, small_mask_rcnn().roi_heads.fg_bg_sampler)
    overlap = torchvision.ops.box_iou(copies, boxes).max(dim=1).values
    assert len(copies) >= 128 and overlap.min() >= 0.5


def test_torchvision_is_as_before() -> None:
    plain = RoIHeads.add_gt_proposals
    mask_samples(1)
    assert RoIHeads.add_gt_proposals is plain
    with samplers_filled(nn.Linear(1, 1)):
        assert RoIHeads.add_gt_proposals is plain
