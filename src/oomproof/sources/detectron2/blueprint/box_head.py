"""The head that names and places the box of each region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.sources.detectron2.blueprint.anchors import Weights, box_loss, box_loss_of
from oomproof.sources.detectron2.blueprint.layers import Conv2d, norm
from oomproof.sources.detectron2.blueprint.samples import Samples


class FastRCNNConvFCHead(nn.Sequential):
    """``size``: numbers that it gives for a region."""

    def __init__(self, config: Mapping[str, Any], channels: int, side: int) -> None:
        super().__init__()
        kind, width = config["MODEL.ROI_BOX_HEAD.NORM"], int(config["MODEL.ROI_BOX_HEAD.CONV_DIM"])
        for number in range(1, 1 + config["MODEL.ROI_BOX_HEAD.NUM_CONV"]):
            conv = Conv2d(channels, width, 3, bias=not kind, norm=norm(kind, width), activation=nn.ReLU())
            self.add_module(f"conv{number}", conv)
            channels = width
        self.size = channels * side * side
        for number in range(1, 1 + config["MODEL.ROI_BOX_HEAD.NUM_FC"]):
            if number == 1:
                self.add_module("flatten", nn.Flatten())
            wide = int(config["MODEL.ROI_BOX_HEAD.FC_DIM"])
            self.add_module(f"fc{number}", nn.Linear(self.size, wide))
            self.add_module(f"fc_relu{number}", nn.ReLU())
            self.size = wide


class FastRCNNOutputLayers(nn.Module):
    def __init__(self, config: Mapping[str, Any], inputs: int, weights: Weights) -> None:
        super().__init__()
        self.config, self.weights = config, weights
        self.classes = int(config["MODEL.ROI_HEADS.NUM_CLASSES"])
        boxes = 1 if config["MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG"] else self.classes
        self.cls_score = nn.Linear(inputs, self.classes + 1)
        self.bbox_pred = nn.Linear(inputs, 4 * boxes)
        if config["MODEL.ROI_BOX_HEAD.USE_FED_LOSS"]:
            self.register_buffer("fed_loss_cls_weights", torch.ones(self.classes))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if x.dim() > 2:
            x = torch.flatten(x, start_dim=1)
        return self.cls_score(x), self.bbox_pred(x)

    def losses(self, scores: torch.Tensor, shifts: torch.Tensor, samples: list[Samples]) -> dict[str, torch.Tensor]:
        classes = torch.cat([image["gt_classes"] for image in samples])
        proposals = torch.cat([image["proposal_boxes"] for image in samples])
        truth = torch.cat([image["gt_boxes"] for image in samples])
        if self.config["MODEL.ROI_BOX_HEAD.USE_SIGMOID_CE"]:
            of_classes = self._sigmoid_loss(scores, classes)
        else:
            of_classes = F.cross_entropy(scores, classes)
        objects = (classes < self.classes).nonzero()[:, 0]
        if shifts.shape[1] == 4:
            chosen = shifts[objects]
        else:
            chosen = shifts.view(-1, self.classes, 4)[objects, classes[objects]]
        how = box_loss_of(self.config, "ROI_BOX_HEAD", self.weights)
        of_boxes = box_loss(how, proposals[objects], chosen[None], [truth[objects]], ...)
        return {"loss_cls": of_classes, "loss_box_reg": of_boxes / max(classes.numel(), 1)}

    def _sigmoid_loss(self, scores: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """A loss for each class by itself; the federated form weighs classes, in one more table."""
        regions = scores.shape[0]
        wanted = scores.new_zeros(scores.shape)
        wanted[torch.arange(regions), classes] = 1
        loss = F.binary_cross_entropy_with_logits(scores[:, :-1], wanted[:, :-1], reduction="none")
        if self.config["MODEL.ROI_BOX_HEAD.USE_FED_LOSS"]:
            loss = loss * torch.ones(1, self.classes).expand(regions, -1).float()
        return loss.sum() / regions
