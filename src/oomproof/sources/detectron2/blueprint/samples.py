"""The regions of an image that heads are trained on: full, as in a trained network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from oomproof.sources.detectron2.blueprint import matching

Samples = dict[str, torch.Tensor]
"""proposal_boxes, gt_classes, and whatever else the annotations have: gt_boxes, gt_masks, gt_keypoints"""


@torch.no_grad()
def sample_regions(
    config: Mapping[str, Any], proposals: list[torch.Tensor], truth: list[Samples], full: bool = True
) -> list[Samples]:
    """Regions of each image with their annotations: objects first, in the share that the sampler aims at; not ``full``:
    no more than are annotated."""
    return [_of_image(config, boxes, image, full) for boxes, image in zip(proposals, truth, strict=True)]


def _of_image(config: Mapping[str, Any], boxes: torch.Tensor, truth: Samples, full: bool) -> Samples:
    given = truth["gt_boxes"].shape[0]
    if config["MODEL.ROI_HEADS.PROPOSAL_APPEND_GT"]:
        boxes = torch.cat((boxes, truth["gt_boxes"]))
    table = matching.overlaps(truth["gt_boxes"], boxes)
    thresholds, labels = config["MODEL.ROI_HEADS.IOU_THRESHOLDS"], config["MODEL.ROI_HEADS.IOU_LABELS"]
    matching.match(table, thresholds, labels, low_quality=False)
    count = min(boxes.shape[0], int(config["MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE"]))
    wanted = int(config["MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE"] * config["MODEL.ROI_HEADS.POSITIVE_FRACTION"])
    annotated = given if config["MODEL.ROI_HEADS.PROPOSAL_APPEND_GT"] else 0
    objects = min(count, wanted, wanted if full else annotated) if given else 0
    places = torch.arange(count)
    background = int(config["MODEL.ROI_HEADS.NUM_CLASSES"])
    if not given:
        nothing = torch.zeros(count, 4)
        return {"proposal_boxes": boxes[places], "gt_classes": torch.full((count,), background), "gt_boxes": nothing}
    matched = places % given
    classes = truth["gt_classes"][matched]
    classes[objects:] = background
    found = {name: value[matched] for name, value in truth.items() if name != "gt_classes"}
    return {"proposal_boxes": boxes[places], "gt_classes": classes, **found}


def foreground(samples: list[Samples], objects_below: int) -> list[Samples]:
    """Only the regions of objects: those whose class is below the number of background."""
    return [_choose_samples(image, (image["gt_classes"] < objects_below).nonzero()[:, 0]) for image in samples]


def _choose_samples(image: Samples, places: torch.Tensor) -> Samples:
    return {name: value[places] for name, value in image.items()}
