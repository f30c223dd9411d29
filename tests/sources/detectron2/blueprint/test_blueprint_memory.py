"""What blueprints keep alive, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from oomproof.changes.torch.training import Training
from oomproof.memory.timeline import KINDS, Timeline
from oomproof.sources.detectron2.blueprint import matching
from oomproof.sources.detectron2.blueprint.batch import make_batch
from oomproof.sources.detectron2.blueprint.build import build_blueprint
from oomproof.sources.detectron2.blueprint.deformable import TAPS, DeformableConv
from oomproof.sources.detectron2.blueprint.layers import FrozenBatchNorm2d, SyncBatchNorm
from oomproof.sources.detectron2.config.config import read
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step
from oomproof.trace.torch.tracer import Tracer

SIZE = (96, 160)
SMALL = ("MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE", 16, "MODEL.RPN.POST_NMS_TOPK_TRAIN", 50)
MASK = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x"


def traced(
    name: str, *overrides: Any, boxes: int = 3, size: tuple[int, int] = SIZE, training: Training | None = None
) -> Timeline:
    values = read(name, (*SMALL, *overrides)).values
    pieces = Pieces(
        lambda: build_blueprint(values),
        lambda: make_batch(values, 2, *size, boxes),
        lambda model, inputs: model(inputs),
    )
    return trace_step(pieces, training or Training())


def saved(layer: torch.nn.Module, x: torch.Tensor) -> list[torch.Size]:
    """Shapes of what a layer keeps for backward, parameters and buffers left aside."""
    kept: list[torch.Size] = []
    own = {t.data_ptr() for t in (*layer.parameters(), *layer.buffers())}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in own:
            kept.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(x)
    return kept


def test_a_frozen_norm_keeps_no_copy_of_its_input() -> None:
    x = torch.rand(2, 8, 4, 4, requires_grad=True)
    assert x.shape not in saved(FrozenBatchNorm2d(8), x)
    assert saved(SyncBatchNorm(8), x).count(x.shape) == 1


def test_a_frozen_norm_computes_the_same_with_and_without_gradients() -> None:
    norm, x = FrozenBatchNorm2d(8), torch.rand(2, 8, 4, 4)
    torch.testing.assert_close(norm(x.clone().requires_grad_()), norm(x))


def test_matching_takes_25_bytes_a_pair_of_anchor_and_box() -> None:
    anchors, boxes = 40_000, 50
    with Tracer() as tracer:
        table = matching.overlaps(torch.rand(boxes, 4), torch.rand(anchors, 4))
        matching.match(table, (0.3, 0.7), (0, -1, 1), low_quality=True)
    peak = tracer.ledger.build().peak().bytes
    assert 24 <= peak / (anchors * boxes) <= 28


def test_overlaps_are_those_of_torchvision() -> None:
    from torchvision.ops import box_iou

    boxes, anchors = matching.scatter_boxes(7, (200, 300)), matching.scatter_boxes(50, (150, 250))
    torch.testing.assert_close(matching.overlaps(boxes, anchors), box_iou(boxes, anchors))


def test_proposals_of_a_trained_network_overlap_the_boxes() -> None:
    from torchvision.ops import box_iou

    boxes = matching.scatter_boxes(5, (200, 300))
    proposals = matching.around(boxes, (200, 300), 64)
    assert proposals.shape == (64, 4)
    assert box_iou(boxes, proposals).amax(dim=0).min() > 0.5


def test_a_deformable_convolution_lays_its_input_out_in_columns() -> None:
    images, channels, side = 2, 16, 32
    layer = DeformableConv(channels, channels, 1, None)
    x = torch.rand(images, channels, side, side, requires_grad=True)
    with Tracer() as tracer:
        tracer.ledger.start_step()
        offset = torch.empty(images, 2 * TAPS, side, side)
        out = layer(tracer.adopt(x.detach()).requires_grad_(), offset)
        assert out.shape == x.shape
    step = tracer.ledger.build()
    largest = int(step.bytes.max())
    assert largest == TAPS * x.nbytes


@pytest.mark.slow
def test_bitmasks_are_on_the_device_and_polygons_are_not() -> None:
    polygons, bitmasks = (traced(MASK, "INPUT.MASK_FORMAT", form) for form in ("polygon", "bitmask"))

    def inputs(step: Timeline) -> int:
        return int(step.bytes[step.kind == KINDS.index("input")].sum())

    masks = 2 * 3 * SIZE[0] * SIZE[1]
    assert masks <= inputs(bitmasks) - inputs(polygons) < 1.1 * masks


RPN, BOXES = {"loss_rpn_cls", "loss_rpn_loc"}, {"loss_cls", "loss_box_reg"}


@pytest.mark.parametrize(
    ("name", "losses"),
    [
        (MASK, RPN | BOXES | {"loss_mask"}),
        ("COCO-Detection/retinanet_R_50_FPN_1x", BOXES),
        ("COCO-InstanceSegmentation/mask_rcnn_R_50_C4_1x", RPN | BOXES | {"loss_mask"}),
        ("COCO-Detection/fast_rcnn_R_50_FPN_1x", BOXES),
        ("COCO-Detection/rpn_R_50_FPN_1x", RPN),
        ("COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x", RPN | BOXES | {"loss_keypoint"}),
        ("Misc/semantic_R_50_FPN_1x", {"loss_sem_seg"}),
    ],
)
@pytest.mark.parametrize("boxes", [0, 3])
@pytest.mark.slow
def test_losses_have_detectron2s_names_with_and_without_objects(name: str, losses: set[str], boxes: int) -> None:
    values = read(name, SMALL).values
    with Tracer():
        found = build_blueprint(values).train()(make_batch(values, 2, *SIZE, boxes))
    assert set(found) == losses


@pytest.mark.slow
def test_samplers_are_full_whatever_the_number_of_boxes() -> None:
    def mask_head(step: Timeline) -> int:
        mine = [number for number, owner in enumerate(step.owners) if owner.startswith("roi_heads.mask_head")]
        kept = step.kind == KINDS.index("activation")
        return sum(int(step.bytes[kept & (step.owner == number)].sum()) for number in mine)

    one, many = (traced(MASK, boxes=boxes) for boxes in (1, 40))
    assert mask_head(one) == pytest.approx(mask_head(many), rel=0.02)
    assert mask_head(one) > 0


@pytest.mark.slow
def test_half_precision_and_recomputed_stages_take_less() -> None:
    def peak(training: Training) -> int:
        return traced(MASK, size=(800, 1333), training=training).peak().bytes

    plain = peak(Training())
    assert peak(Training(precision="fp16")) < 0.75 * plain
    assert peak(Training(checkpoint="backbone.bottom_up.res4")) < 0.9 * plain


@pytest.mark.slow
def test_more_classes_make_more_mask_logits() -> None:
    few, many = (traced(MASK, "MODEL.ROI_HEADS.NUM_CLASSES", classes).peak().bytes for classes in (80, 1203))
    logits = 8 * (1203 - 80) * 28 * 28 * 4
    assert many - few > logits
