"""What models give between epochs, at full size: boxes, masks drawn into the image, a class for every pixel.

A trained network finds as many objects as it may (TEST.DETECTIONS_PER_IMAGE); where they are makes no difference to
memory, so they are scattered over the image instead of sorted out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.sources.detectron2.blueprint.anchors import move_anchors
from oomproof.sources.detectron2.blueprint.cascade_heads import CascadeROIHeads
from oomproof.sources.detectron2.blueprint.detector import Detector, Inputs, sizes_of_images
from oomproof.sources.detectron2.blueprint.matching import scatter_boxes
from oomproof.sources.detectron2.blueprint.res5_heads import Res5ROIHeads
from oomproof.sources.detectron2.blueprint.retinanet import RetinaNet, by_anchor
from oomproof.sources.detectron2.blueprint.rpn import RPN, join_levels

Found = dict[str, torch.Tensor]
DRAWN_AT_ONCE = 1 << 30
"""bytes of masks, as floats, that Detectron2 draws at a time on a GPU"""


def infer(model: Any, inputs: Inputs) -> list[Found]:
    """What the model finds in each image; an input's ``height`` and ``width`` are those of the image as stored."""
    assert isinstance(model, Detector)
    images = model._images(inputs)
    features = model.backbone(images)
    if isinstance(model, RetinaNet):
        return [_boxes(model.config, size) for size in _retinanet(model, features, inputs)]
    found: list[Found] = [{} for _ in inputs]
    logits = None
    if isinstance(head := getattr(model, "sem_seg_head", None), nn.Module):
        logits = F.interpolate(head._logits(features).float(), scale_factor=head.stride, mode="bilinear")
    if isinstance(rpn := getattr(model, "proposal_generator", None), RPN):
        proposals = _proposals(rpn, features, sizes_of_images(inputs))
    else:
        proposals = [one["proposals"] for one in inputs if "proposals" in one]
    if isinstance(heads := getattr(model, "roi_heads", None), nn.Module):
        found = _regions(heads, features, proposals, inputs)
    for place, (result, one) in enumerate(zip(found, inputs, strict=True)):
        if logits is not None:  # before masks are drawn, as in PanopticFPN
            result["sem_seg"] = _resize_to_stored(logits[place], one)
        if "masks" in result:
            some = result["masks"][: find_worst_count(len(result["masks"]), _read_stored_size(one))]
            result["masks"] = draw_masks(some, result["boxes"], _read_stored_size(one))
    return found


def _retinanet(model: RetinaNet, features: Any, inputs: Inputs) -> list[tuple[int, int]]:
    """Scores of all anchors, level by level; a trained network is sure of few of them."""
    maps = [features[name] for name in model.in_features]
    anchors = model.anchor_generator(maps)
    predictions = model.head(maps)
    logits = [by_anchor(level, model.classes) for level in predictions[0]]
    shifts = [by_anchor(level, 4) for level in predictions[1]]
    best = int(model.config["MODEL.RETINANET.TOPK_CANDIDATES_TEST"])
    weights = tuple(model.config["MODEL.RETINANET.BBOX_REG_WEIGHTS"])
    for image in range(len(inputs)):
        scores = [level[image].sigmoid_() for level in logits]
        for level, moves, some in zip(scores, shifts, anchors, strict=True):
            sure = level > float(model.config["MODEL.RETINANET.SCORE_THRESH_TEST"])
            places = torch.arange(min(best, some.shape[0]))
            move_anchors(some[places], moves[image][places], weights)
            del sure
    return [_read_stored_size(one) for one in inputs]


def _proposals(rpn: RPN, features: Mapping[str, torch.Tensor], sizes: list[tuple[int, int]]) -> list[torch.Tensor]:
    config = rpn.config
    maps = [features[name] for name in rpn.in_features]
    anchors = rpn.anchor_generator(maps)
    logits, deltas = rpn.rpn_head(maps)
    weights, images = tuple(config["MODEL.RPN.BBOX_REG_WEIGHTS"]), len(sizes)
    numbers, best = torch.arange(images)[:, None], []
    for level, shifts, some in zip(logits, deltas, anchors, strict=True):
        scores = level.permute(0, 2, 3, 1).flatten(1)
        near = shifts.view(images, -1, 4, *shifts.shape[-2:]).permute(0, 3, 4, 1, 2).reshape(-1, 4)
        boxes = move_anchors(some[None].expand(images, -1, -1).reshape(-1, 4), near, weights).view(images, -1, 4)
        places = scores.topk(min(scores.shape[1], int(config["MODEL.RPN.PRE_NMS_TOPK_TEST"])), dim=1).indices
        best.append(boxes[numbers, places])
    count = min(join_levels(best).shape[1], int(config["MODEL.RPN.POST_NMS_TOPK_TEST"]))
    return [scatter_boxes(count, size) for size in sizes]


def _regions(heads: Any, features: Any, proposals: list[torch.Tensor], inputs: Inputs) -> list[Found]:
    config = heads.config
    res5 = isinstance(heads, Res5ROIHeads)
    maps = [features[heads.in_feature]] if res5 else [features[name] for name in heads.in_features]
    _box_scores(heads, maps, proposals)
    found = [_boxes(config, size) for size in sizes_of_images(inputs)]
    if not heads.full_samplers:  # nothing is found, and no mask drawn
        return [{name: value[:0] for name, value in image.items()} for image in found]
    regions = [image["boxes"] for image in found]
    if config["MODEL.MASK_ON"]:
        x = heads.res5(heads.pooler(maps, regions)) if res5 else heads.mask_pooler(maps, regions)
        for layer in heads.mask_head:
            x = layer(x)
        masks = _of_own_class(x).sigmoid()
        del x
        for image, some in zip(found, masks.split([len(each) for each in regions]), strict=True):
            image["masks"] = some
    if config["MODEL.KEYPOINT_ON"] and not res5:
        x = heads.keypoint_pooler(maps, regions)
        for layer in heads.keypoint_head:
            x = layer(x)
        found[0]["keypoints"] = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
    return found


def _box_scores(heads: Any, maps: list[torch.Tensor], proposals: list[torch.Tensor]) -> None:
    if isinstance(heads, Res5ROIHeads):
        x = heads.res5(heads.pooler(maps, proposals))
        scores, shifts = heads.box_predictor(x.mean(dim=[2, 3]))
        stages = [(scores, shifts, heads.box_predictor.weights)]
    elif isinstance(heads, CascadeROIHeads):
        stages = []
        for head, predictor in zip(heads.box_head, heads.box_predictor, strict=True):
            scores, shifts = predictor(head(heads.box_pooler(maps, proposals)))
            stages.append((scores, shifts, predictor.weights))
    else:
        scores, shifts = heads.box_predictor(heads.box_head(heads.box_pooler(maps, proposals)))
        stages = [(scores, shifts, heads.box_predictor.weights)]
    for scores, shifts, weights in stages:
        classes = shifts.shape[1] // 4
        boxes = torch.cat(proposals)[:, None].expand(-1, classes, 4).reshape(-1, 4)
        move_anchors(boxes, shifts.reshape(-1, 4), weights)
        scores.softmax(dim=-1)


def find_worst_count(most: int, size: tuple[int, int]) -> int:
    """Of as many objects as may be found: a few less than all take more where they are drawn at once, and all are not.

    >>> find_worst_count(100, (480, 640)), find_worst_count(100, (1500, 2000))
    (100, 89)
    """
    pixels = size[0] * size[1]

    def count_bytes(count: int) -> int:
        at_once = math.ceil(count / math.ceil(count * pixels * 4 / DRAWN_AT_ONCE))
        return (2 * count + 13 * at_once) * pixels

    return max(range(1, most + 1), key=count_bytes, default=0)


def draw_masks(masks: torch.Tensor, boxes: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Masks of 28 x 28 pixels at their places in images of ``size``: all of them, or as many as Detectron2 draws at a
    time."""
    height, width = size
    count = masks.shape[0]
    drawn = torch.zeros(count, height, width, dtype=torch.bool)
    parts = max(1, math.ceil(count * height * width * 4 / DRAWN_AT_ONCE))
    for places in torch.arange(count).chunk(parts):
        some = boxes[places]
        high = (torch.arange(height, dtype=torch.float32) + 0.5 - some[:, 1:2]) / (some[:, 3:] - some[:, 1:2]) * 2 - 1
        wide = (torch.arange(width, dtype=torch.float32) + 0.5 - some[:, :1]) / (some[:, 2:3] - some[:, :1]) * 2 - 1
        across = wide[:, None, :].expand(len(places), height, width)
        down = high[:, :, None].expand(len(places), height, width)
        grid = torch.stack([across, down], dim=3)
        values = F.grid_sample(masks[places].float(), grid, align_corners=False)[:, 0]
        del grid
        values = values >= 0.5  # which lives until the next part is drawn, as there
        drawn[places] = values
    return drawn


def _of_own_class(masks: torch.Tensor) -> torch.Tensor:
    if masks.shape[1] == 1:
        return masks
    count = masks.shape[0]
    return masks[torch.arange(count), torch.zeros(count, dtype=torch.int64)][:, None]


def _boxes(config: Mapping[str, Any], size: tuple[int, int]) -> Found:
    count = int(config["TEST.DETECTIONS_PER_IMAGE"])
    return {"boxes": scatter_boxes(count, size), "scores": torch.zeros(count), "classes": torch.zeros(count).long()}


def _resize_to_stored(scores: torch.Tensor, one: Mapping[str, Any]) -> torch.Tensor:
    height, width = one["image"].shape[-2:]
    return F.interpolate(
        scores[None, :, :height, :width], size=_read_stored_size(one), mode="bilinear", align_corners=False
    )[0]


def _read_stored_size(one: Mapping[str, Any]) -> tuple[int, int]:
    return int(one["height"]), int(one["width"])
