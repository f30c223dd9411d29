"""The region proposal network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint import matching
from oomproof.sources.detectron2.blueprint.anchors import AnchorGenerator, box_loss, box_loss_of, move_anchors
from oomproof.sources.detectron2.blueprint.layers import Conv2d, Feature

Size = tuple[int, int]


class StandardRPNHead(nn.Module):
    def __init__(self, config: Mapping[str, Any], channels: int, anchors: int) -> None:
        super().__init__()
        convs = []
        for wanted in config["MODEL.RPN.CONV_DIMS"]:
            outputs = channels if wanted == -1 else int(wanted)
            convs.append(Conv2d(channels, outputs, 3, activation=nn.ReLU()))
            channels = outputs
        self.conv: nn.Module = convs[0]
        if len(convs) > 1:
            self.conv = nn.Sequential()
            for number, conv in enumerate(convs):
                self.conv.add_module(f"conv{number}", conv)
        self.objectness_logits = nn.Conv2d(channels, anchors, 1)
        self.anchor_deltas = nn.Conv2d(channels, 4 * anchors, 1)

    def forward(self, features: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        logits, deltas = [], []
        for x in features:
            t = self.conv(x)
            logits.append(self.objectness_logits(t))
            deltas.append(self.anchor_deltas(t))
        return logits, deltas


class RPN(nn.Module):
    def __init__(self, config: Mapping[str, Any], features: Mapping[str, Feature]) -> None:
        super().__init__()
        if config["MODEL.RPN.HEAD_NAME"] != "StandardRPNHead":
            raise InputError(
                f"MODEL.RPN.HEAD_NAME '{config['MODEL.RPN.HEAD_NAME']}' has no blueprint; expected StandardRPNHead. "
                "Install Detectron2 beside oomproof to trace the real model"
            )
        self.config = config
        self.in_features = tuple(config["MODEL.RPN.IN_FEATURES"])
        taken = [features[name] for name in self.in_features]
        self.anchor_generator = AnchorGenerator(config, taken)
        self.rpn_head = StandardRPNHead(config, taken[0].channels, self.anchor_generator.per_place)

    def forward(
        self, sizes: list[Size], features: Mapping[str, torch.Tensor], truth: list[dict[str, torch.Tensor]]
    ) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        """(proposals of each image, losses)"""
        maps = [features[name] for name in self.in_features]
        anchors = self.anchor_generator(maps)
        logits, deltas = self.rpn_head(maps)
        logits = [level.permute(0, 2, 3, 1).flatten(1) for level in logits]
        deltas = [
            level.view(level.shape[0], -1, 4, *level.shape[-2:]).permute(0, 3, 4, 1, 2).flatten(1, -2)
            for level in deltas
        ]
        labels, boxes = self._sample_anchors(torch.cat(anchors), truth)
        losses = self._losses(anchors, logits, labels, deltas, boxes)
        return self._proposals(anchors, logits, deltas, sizes, truth), losses

    @torch.no_grad()
    def _sample_anchors(
        self, anchors: torch.Tensor, truth: list[dict[str, torch.Tensor]]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Labels of the anchors of each image, and the box that each should find."""
        config, labels, boxes = self.config, [], []
        samples, share = config["MODEL.RPN.BATCH_SIZE_PER_IMAGE"], config["MODEL.RPN.POSITIVE_FRACTION"]
        for image in truth:
            given = image["gt_boxes"]
            table = matching.overlaps(given, anchors)
            matching.match(table, config["MODEL.RPN.IOU_THRESHOLDS"], config["MODEL.RPN.IOU_LABELS"], low_quality=True)
            del table
            places = torch.zeros(anchors.shape[0], dtype=torch.int64)
            found = matching.make_labels(anchors.shape[0], int(samples * share) if len(given) else 0)
            labels.append(matching.subsample_labels(found, samples, share))
            boxes.append(given[places] if len(given) else torch.zeros_like(anchors))
        return labels, boxes

    def _losses(
        self,
        anchors: list[torch.Tensor],
        logits: list[torch.Tensor],
        labels: list[torch.Tensor],
        deltas: list[torch.Tensor],
        boxes: list[torch.Tensor],
    ) -> dict[str, torch.Tensor]:
        config = self.config
        label = torch.stack(labels)
        how = box_loss_of(config, "RPN", config["MODEL.RPN.BBOX_REG_WEIGHTS"])
        of_boxes = box_loss(how, torch.cat(anchors), join_levels(deltas), boxes, label == 1)
        valid = label >= 0
        of_classes = F.binary_cross_entropy_with_logits(
            join_levels(logits)[valid], label[valid].to(torch.float32), reduction="sum"
        )
        share = 1 / (config["MODEL.RPN.BATCH_SIZE_PER_IMAGE"] * len(labels))
        return {"loss_rpn_cls": of_classes * share, "loss_rpn_loc": of_boxes * share}

    @torch.no_grad()
    def _proposals(
        self,
        anchors: list[torch.Tensor],
        logits: list[torch.Tensor],
        deltas: list[torch.Tensor],
        sizes: list[Size],
        truth: list[dict[str, torch.Tensor]],
    ) -> list[torch.Tensor]:
        """Boxes of all anchors, the best of each level; then, instead of NMS, as many as a trained network keeps."""
        config, images = self.config, len(sizes)
        weights = tuple(config["MODEL.RPN.BBOX_REG_WEIGHTS"])
        made = [
            move_anchors(some[None].expand(images, -1, -1).reshape(-1, 4), level.reshape(-1, 4), weights).view(
                images, -1, 4
            )
            for some, level in zip(anchors, deltas, strict=True)
        ]
        numbers = torch.arange(images)[:, None]
        best = []
        for level, boxes in zip(logits, made, strict=True):
            _, places = level.topk(min(level.shape[1], config["MODEL.RPN.PRE_NMS_TOPK_TRAIN"]), dim=1)
            best.append(boxes[numbers, places])
        kept = join_levels(best)
        count = min(kept.shape[1], config["MODEL.RPN.POST_NMS_TOPK_TRAIN"])
        return [matching.around(image["gt_boxes"], size, count) for image, size in zip(truth, sizes, strict=True)]


def join_levels(levels: list[torch.Tensor]) -> torch.Tensor:
    """All levels side by side; a single one as it is, without a copy."""
    return levels[0] if len(levels) == 1 else torch.cat(levels, dim=1)
