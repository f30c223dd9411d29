"""Small real networks of every kind whose training a plan may change, with a batch and the loss of each.

Detectors are those of torchvision and transformers, on a thin ResNet; normalisation and the first layers are
frozen as they are when training starts from a pretrained backbone, but nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.models.detection import FCOS, FasterRCNN, MaskRCNN, RetinaNet
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.ssd import SSD, DefaultBoxGenerator
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

SIDE, CLASSES, IMAGES, WIDTH = 80, 4, 4, 64
BOXES = (3, 1, 5, 2)
"""in every image: as uneven as in real data, so that a wrong normaliser shows"""


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    batch: Callable[[], Any]
    loss: Callable[[nn.Module, Any], Any]


def backbone(first: int = 1, last: LastLevelP6P7 | None = None) -> nn.Module:
    """A thin ResNet with a feature pyramid. Fresh weights are made smaller: normalisation that is frozen before it has
    learned lets them explode."""
    body = ResNet(BasicBlock, [1, 2, 1, 1], norm_layer=FrozenBatchNorm2d)
    body.conv1.requires_grad_(False)
    body.layer1.requires_grad_(False)
    with torch.no_grad():
        for layer in body.modules():
            if isinstance(layer, nn.Conv2d):
                layer.weight.mul_(0.6)
            if isinstance(layer, FrozenBatchNorm2d):
                layer.bias.uniform_(-0.1, 0.1)
    stages = range(first, 5)
    returned = {f"layer{stage}": str(place) for place, stage in enumerate(stages)}
    return BackboneWithFPN(body, returned, [64 << (stage - 1) for stage in stages], WIDTH, last)


def detection_batch(masks: bool = False) -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    noise = torch.Generator().manual_seed(5)
    images, targets = [], []
    for count in BOXES:
        images.append(torch.rand(3, SIDE, SIDE, generator=noise))
        corner = torch.rand(count, 2, generator=noise) * SIDE * 0.5
        size = torch.rand(count, 2, generator=noise) * SIDE * 0.4 + 8
        target = {
            "boxes": torch.cat([corner, corner + size], dim=1),
            "labels": torch.randint(1, CLASSES, (count,), generator=noise),
        }
        if masks:
            target["masks"] = (torch.rand(count, SIDE, SIDE, generator=noise) > 0.5).to(torch.uint8)
        targets.append(target)
    return images, targets


SIZES = {"min_size": SIDE, "max_size": SIDE}
FEW = {"rpn_post_nms_top_n_train": 60, "box_batch_size_per_image": 16}


def faster_rcnn() -> nn.Module:
    return FasterRCNN(backbone(), CLASSES, **SIZES, **FEW)


def mask_rcnn() -> nn.Module:
    return MaskRCNN(backbone(), CLASSES, **SIZES, **FEW)


def loud(model: nn.Module) -> nn.Module:
    """Heads start with weights so small that, this thin, gradients would be nothing but rounding."""
    with torch.no_grad():
        for layer in model.head.modules():
            if isinstance(layer, nn.Conv2d):
                layer.weight.mul_(6)
    return model


def retinanet() -> nn.Module:
    pyramid = backbone(2, LastLevelP6P7(WIDTH, WIDTH))
    return loud(RetinaNet(pyramid, CLASSES, **SIZES))


def fcos() -> nn.Module:
    pyramid = backbone(2, LastLevelP6P7(WIDTH, WIDTH))
    return loud(FCOS(pyramid, CLASSES, **SIZES))


def ssd() -> nn.Module:
    class Body(nn.Module):
        """Two maps of features."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 8, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU())
            self.second = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
            self.out_channels = [16, 32]

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            first = self.first(x)
            return {"0": first, "1": self.second(first)}

    return SSD(Body(), DefaultBoxGenerator([[2], [2]]), (SIDE, SIDE), CLASSES)


def detr() -> nn.Module:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    body = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], layer_type="basic", out_features=["stage2"]
    )
    config = DetrConfig(
        backbone_config=body, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, d_model=32,
        encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=2,
        decoder_attention_heads=2, num_queries=8, num_labels=CLASSES, dropout=0.1, auxiliary_loss=True,
    )  # fmt: skip
    return DetrForObjectDetection(config)


def detr_batch() -> dict[str, Any]:
    images, targets = detection_batch()
    labels = [
        {
            "class_labels": target["labels"],
            "boxes": torch.cat(
                [
                    (target["boxes"][:, :2] + target["boxes"][:, 2:]) / 2,
                    target["boxes"][:, 2:] - target["boxes"][:, :2],
                ],
                1,
            )
            / SIDE,
        }
        for target in targets
    ]
    return {"pixel_values": torch.stack(images), "pixel_mask": torch.ones(IMAGES, SIDE, SIDE), "labels": labels}


def classifier(norm: Callable[[int], nn.Module]) -> nn.Module:
    model = ResNet(BasicBlock, [1, 1, 1, 1], 10, norm_layer=norm)
    model.fc = nn.Sequential(nn.Dropout(0.2), model.fc)
    return model


def classifier_batch() -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(6)
    return torch.rand(IMAGES, 3, 64, 64, generator=noise), torch.randint(0, 10, (IMAGES,), generator=noise)


def class_loss(model: nn.Module, data: Any) -> torch.Tensor:
    return cross_entropy(model(data[0]), data[1])


def on_pairs(model: nn.Module, data: Any) -> Any:
    return model(*data)


CASES = {
    "Faster R-CNN": Case(faster_rcnn, detection_batch, on_pairs),
    "Mask R-CNN": Case(mask_rcnn, lambda: detection_batch(masks=True), on_pairs),
    "RetinaNet": Case(retinanet, detection_batch, on_pairs),
    "FCOS": Case(fcos, detection_batch, on_pairs),
    "SSD": Case(ssd, detection_batch, on_pairs),
    "DETR": Case(detr, detr_batch, lambda model, data: model(**data)),
    "BatchNorm": Case(lambda: classifier(nn.BatchNorm2d), classifier_batch, class_loss),
    "GroupNorm": Case(lambda: classifier(lambda width: nn.GroupNorm(8, width)), classifier_batch, class_loss),
}


@cache
def fresh(case: str, dropout: bool = True, dtype: torch.dtype = torch.float32) -> nn.Module:
    assert dtype is torch.get_default_dtype()
    torch.manual_seed(7)
    model = CASES[case].build().train()
    for layer in model.modules():
        if not dropout and isinstance(getattr(layer, "dropout", None), float):
            layer.dropout = 0.0  # transformers keep the rate, not a layer
        if not dropout and isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return model
