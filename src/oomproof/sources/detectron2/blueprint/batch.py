"""A batch in the form that blueprints take: images of one size, each with as many objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from oomproof.sources.detectron2.blueprint.matching import scatter_boxes

_SEEN = 2.0
"""a keypoint that is marked and visible, as COCO has it"""


def make_batch(config: Mapping[str, Any], images: int, height: int, width: int, boxes: int) -> list[dict[str, Any]]:
    """``images`` images of ``height`` x ``width`` pixels before padding, with ``boxes`` objects each."""
    return [_image(config, height, width, boxes) for _ in range(images)]


def _image(config: Mapping[str, Any], height: int, width: int, boxes: int) -> dict[str, Any]:
    made: dict[str, Any] = {"image": torch.zeros(3, height, width, dtype=torch.uint8)}
    meta = config["MODEL.META_ARCHITECTURE"]
    if meta != "SemanticSegmentor":
        made["instances"] = _instances(config, height, width, boxes)
    if meta in ("SemanticSegmentor", "PanopticFPN"):
        made["sem_seg"] = torch.zeros(height, width, dtype=torch.int64)
    if config["MODEL.PROPOSAL_GENERATOR.NAME"] == "PrecomputedProposals":
        made["proposals"] = scatter_boxes(int(config["DATASETS.PRECOMPUTED_PROPOSAL_TOPK_TRAIN"]), (height, width))
    return made


def _instances(config: Mapping[str, Any], height: int, width: int, boxes: int) -> dict[str, torch.Tensor]:
    truth = {"gt_boxes": scatter_boxes(boxes, (height, width)), "gt_classes": torch.zeros(boxes, dtype=torch.int64)}
    if config["MODEL.MASK_ON"] and config["INPUT.MASK_FORMAT"] == "bitmask":
        truth["gt_masks"] = torch.zeros(boxes, height, width, dtype=torch.bool)
    if config["MODEL.KEYPOINT_ON"]:
        corners = truth["gt_boxes"]
        middle = torch.cat(((corners[:, :2] + corners[:, 2:]) / 2, torch.full((boxes, 1), _SEEN)), dim=1)
        truth["gt_keypoints"] = middle[:, None].repeat(1, int(config["MODEL.ROI_KEYPOINT_HEAD.NUM_KEYPOINTS"]), 1)
    return truth
