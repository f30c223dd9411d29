"""Box heads in a row (Cascade R-CNN): each starts from the boxes of the one before."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint import matching
from oomproof.sources.detectron2.blueprint.anchors import move_anchors
from oomproof.sources.detectron2.blueprint.box_head import FastRCNNOutputLayers
from oomproof.sources.detectron2.blueprint.roi_heads import Losses, Maps, StandardROIHeads, box_head, boxes_of
from oomproof.sources.detectron2.blueprint.samples import Samples


class CascadeROIHeads(StandardROIHeads):
    def _add_box_heads(self, channels: int) -> None:
        config = self.config
        if not config["MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG"]:
            raise InputError(
                "CascadeROIHeads has one box for all classes: set MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG True"
            )
        self.stage_weights = [tuple(some) for some in config["MODEL.ROI_BOX_CASCADE_HEAD.BBOX_REG_WEIGHTS"]]
        heads = [box_head(config, channels) for _ in self.stage_weights]
        self.box_head = nn.ModuleList(heads)
        self.box_predictor = nn.ModuleList(
            FastRCNNOutputLayers(config, head.size, weights)
            for head, weights in zip(heads, self.stage_weights, strict=True)
        )

    def _box_losses(self, features: Maps, samples: list[Samples], truth: list[Samples]) -> Losses:
        maps = [features[name] for name in self.in_features]
        outputs: list[tuple[Any, list[Samples]]] = []
        boxes = torch.empty(0)  # of the stage before: kept, as there, until the next ones are made
        for stage, weights in enumerate(self.stage_weights):
            if stage:
                self._match(stage, boxes.detach(), samples, truth)
            predictions = self._stage(maps, samples, stage)
            boxes = move_anchors(torch.cat(boxes_of(samples)), predictions[1], weights)
            outputs.append((predictions, samples))
        losses: Losses = {}
        for stage, (predictions, some) in enumerate(outputs):
            found = self.box_predictor[stage].losses(*predictions, some)
            losses |= {f"{name}_stage{stage}": loss for name, loss in found.items()}
        return losses

    def _stage(self, maps: list[torch.Tensor], samples: list[Samples], stage: int) -> Any:
        x = self.box_pooler(maps, boxes_of(samples))
        x = _Scaled.apply(x, 1 / len(self.stage_weights))
        x = self.box_head[stage](x)
        return self.box_predictor[stage](x)

    @torch.no_grad()
    def _match(self, stage: int, boxes: torch.Tensor, samples: list[Samples], truth: list[Samples]) -> None:
        """Boxes are matched anew. A trained network's stay near the objects, so the same samples go on."""
        least = self.config["MODEL.ROI_BOX_CASCADE_HEAD.IOUS"][stage]
        for some, image, found in zip(
            boxes.split([len(each["gt_classes"]) for each in samples]), truth, samples, strict=True
        ):
            assert len(some) == len(found["gt_classes"])
            matching.match(matching.overlaps(image["gt_boxes"], some), [least], [0, 1], low_quality=False)


class _Scaled(torch.autograd.Function):
    """x as it is; its gradient scaled."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.scale, None
