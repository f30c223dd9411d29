"""RetinaNet: classes and boxes for every anchor, at every place of five levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.sources.detectron2.blueprint import matching
from oomproof.sources.detectron2.blueprint.anchors import AnchorGenerator, box_loss, box_loss_of
from oomproof.sources.detectron2.blueprint.detector import Detector, Inputs, Losses
from oomproof.sources.detectron2.blueprint.layers import Feature, SyncBatchNorm, norm
from oomproof.sources.detectron2.blueprint.rpn import join_levels
from oomproof.sources.detectron2.blueprint.samples import Samples

_NORMALIZER = 100.0
"""anchors that are objects: only a divisor"""


class LevelNorms(nn.ModuleList):
    """A batch norm for each level, taken in turn."""

    def __init__(self, make: Callable[[int], nn.Module], channels: int, levels: int) -> None:
        super().__init__(make(channels) for _ in range(levels))
        self.turn = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self[self.turn](x)
        self.turn = (self.turn + 1) % len(self)
        return result


class RetinaNetHead(nn.Module):
    def __init__(self, config: Mapping[str, Any], features: Sequence[Feature], anchors: int) -> None:
        super().__init__()
        channels, classes = features[0].channels, int(config["MODEL.RETINANET.NUM_CLASSES"])
        self.cls_subnet = _subnet(config, channels, len(features))
        self.bbox_subnet = _subnet(config, channels, len(features))
        self.cls_score = nn.Conv2d(channels, anchors * classes, 3, padding=1)
        self.bbox_pred = nn.Conv2d(channels, anchors * 4, 3, padding=1)

    def forward(self, features: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        logits, shifts = [], []
        for x in features:
            logits.append(self.cls_score(self.cls_subnet(x)))
            shifts.append(self.bbox_pred(self.bbox_subnet(x)))
        return logits, shifts


class RetinaNet(Detector):
    def __init__(self, config: Mapping[str, Any], backbone: Any) -> None:
        super().__init__(config, backbone)
        self.config = config
        self.in_features = tuple(config["MODEL.RETINANET.IN_FEATURES"])
        taken = [backbone.features[name] for name in self.in_features]
        self.anchor_generator = AnchorGenerator(config, taken)
        self.head = RetinaNetHead(config, taken, self.anchor_generator.per_place)
        self.classes = int(config["MODEL.RETINANET.NUM_CLASSES"])

    def forward(self, inputs: Inputs) -> Losses:
        images = self._images(inputs)
        features = self.backbone(images)
        maps = [features[name] for name in self.in_features]
        predictions = self.head(maps)
        return self._losses(maps, predictions, [one["instances"] for one in inputs])

    def _losses(self, maps: list[torch.Tensor], predictions: Any, truth: list[Samples]) -> Losses:
        logits = [by_anchor(level, self.classes) for level in predictions[0]]
        shifts = [by_anchor(level, 4) for level in predictions[1]]
        anchors = self.anchor_generator(maps)
        labels, boxes = self._label_anchors(torch.cat(anchors), truth)
        label = torch.stack(labels)
        valid = label >= 0
        objects = (label >= 0) & (label != self.classes)
        wanted = F.one_hot(label[valid], num_classes=self.classes + 1)[:, :-1]
        of_classes = self._focal_loss(join_levels(logits)[valid], wanted.to(logits[0].dtype))
        how = box_loss_of(self.config, "RETINANET", self.config["MODEL.RETINANET.BBOX_REG_WEIGHTS"])
        of_boxes = box_loss(how, torch.cat(anchors), join_levels(shifts), boxes, objects)
        return {"loss_cls": of_classes / _NORMALIZER, "loss_box_reg": of_boxes / _NORMALIZER}

    @torch.no_grad()
    def _label_anchors(
        self, anchors: torch.Tensor, truth: list[Samples]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Every anchor is trained on: a class each, most of them background."""
        labels, boxes = [], []
        thresholds, kinds = self.config["MODEL.RETINANET.IOU_THRESHOLDS"], self.config["MODEL.RETINANET.IOU_LABELS"]
        for image in truth:
            given = image["gt_boxes"]
            table = matching.overlaps(given, anchors)
            matching.match(table, thresholds, kinds, low_quality=True)
            del table
            label = torch.full((anchors.shape[0],), self.classes)
            label[: len(given)] = 0
            labels.append(label)
            places = torch.zeros(anchors.shape[0], dtype=torch.int64)
            boxes.append(given[places] if len(given) else torch.zeros_like(anchors))
        return labels, boxes

    def _focal_loss(self, logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Temporaries go as soon as they are used, as in the compiled loss of Detectron2."""
        alpha, gamma = self.config["MODEL.RETINANET.FOCAL_LOSS_ALPHA"], self.config["MODEL.RETINANET.FOCAL_LOSS_GAMMA"]
        logits, wanted = logits.float(), wanted.float()
        sure = torch.sigmoid(logits)
        loss = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        right = sure * wanted + (1 - sure) * (1 - wanted)
        del sure
        loss = loss * ((1 - right) ** gamma)
        del right
        if alpha >= 0:
            loss = (alpha * wanted + (1 - alpha) * (1 - wanted)) * loss
        return loss.sum()


def by_anchor(level: torch.Tensor, numbers: int) -> torch.Tensor:
    """images x (places and anchors) x numbers"""
    images, _, height, width = level.shape
    return level.view(images, -1, numbers, height, width).permute(0, 3, 4, 1, 2).reshape(images, -1, numbers)


def _subnet(config: Mapping[str, Any], channels: int, levels: int) -> nn.Sequential:
    kind = config["MODEL.RETINANET.NORM"]
    layers: list[nn.Module] = []
    for _ in range(config["MODEL.RETINANET.NUM_CONVS"]):
        layers.append(nn.Conv2d(channels, channels, 3, padding=1))
        if kind in ("BN", "SyncBN"):
            layers.append(LevelNorms(nn.BatchNorm2d if kind == "BN" else SyncBatchNorm, channels, levels))
        elif kind:
            between = norm(kind, channels)
            assert between is not None
            layers.append(between)
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)
