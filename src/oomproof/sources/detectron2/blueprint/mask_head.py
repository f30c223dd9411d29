"""The head that draws a mask in the region of each object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.ops import roi_align

from oomproof.sources.detectron2.blueprint.layers import Conv2d, norm
from oomproof.sources.detectron2.blueprint.samples import Samples


class MaskRCNNConvUpsampleHead(nn.Sequential):
    def __init__(self, config: Mapping[str, Any], channels: int) -> None:
        super().__init__()
        kind, width = config["MODEL.ROI_MASK_HEAD.NORM"], int(config["MODEL.ROI_MASK_HEAD.CONV_DIM"])
        for number in range(1, 1 + config["MODEL.ROI_MASK_HEAD.NUM_CONV"]):
            conv = Conv2d(channels, width, 3, bias=not kind, norm=norm(kind, width), activation=nn.ReLU())
            self.add_module(f"mask_fcn{number}", conv)
            channels = width
        self.deconv = nn.ConvTranspose2d(channels, width, 2, 2)
        self.deconv_relu = nn.ReLU()
        agnostic = config["MODEL.ROI_MASK_HEAD.CLS_AGNOSTIC_MASK"]
        self.predictor = Conv2d(width, 1 if agnostic else int(config["MODEL.ROI_HEADS.NUM_CLASSES"]), 1)

    def forward(self, x: torch.Tensor, samples: list[Samples]) -> dict[str, torch.Tensor]:
        for layer in self:
            x = layer(x)
        return {"loss_mask": _loss(x, samples)}


def _loss(logits: torch.Tensor, samples: list[Samples]) -> torch.Tensor:
    if not logits.shape[0]:
        return logits.sum() * 0
    masks = torch.cat([_cut(image, logits.shape[-1]) for image in samples])
    if logits.shape[1] == 1:
        logits = logits[:, 0]
    else:
        logits = logits[torch.arange(logits.shape[0]), torch.cat([image["gt_classes"] for image in samples])]
    wanted = masks.to(torch.float32)
    wrong = (logits > 0.0) != masks
    del wrong
    return F.binary_cross_entropy_with_logits(logits, wanted)


def _cut(image: Samples, side: int) -> torch.Tensor:
    """The annotated masks in their regions. Polygons are drawn on the host; whole bitmaps are cut on the device."""
    boxes = image["proposal_boxes"]
    if "gt_masks" not in image:
        return torch.zeros(boxes.shape[0], side, side, dtype=torch.bool)
    regions = torch.cat((torch.arange(boxes.shape[0]).to(boxes.dtype)[:, None], boxes), dim=1)
    bitmaps = image["gt_masks"].to(torch.float32)
    return roi_align(bitmaps[:, None], regions, side, 1.0, 0, True).squeeze(1) >= 0.5
