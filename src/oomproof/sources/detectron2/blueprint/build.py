"""A config becomes a model: Detectron2's names for parts, and the classes that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint.cascade_heads import CascadeROIHeads
from oomproof.sources.detectron2.blueprint.detector import (
    GeneralizedRCNN,
    PanopticFPN,
    ProposalNetwork,
    SemanticSegmentor,
)
from oomproof.sources.detectron2.blueprint.fpn import FPN, LastLevelMaxPool, LastLevelP6P7
from oomproof.sources.detectron2.blueprint.layers import Feature
from oomproof.sources.detectron2.blueprint.res5_heads import Res5ROIHeads
from oomproof.sources.detectron2.blueprint.resnet import ResNet
from oomproof.sources.detectron2.blueprint.retinanet import RetinaNet
from oomproof.sources.detectron2.blueprint.roi_heads import StandardROIHeads, require_head
from oomproof.sources.detectron2.blueprint.rpn import RPN
from oomproof.sources.detectron2.blueprint.semantic import SemSegFPNHead
from oomproof.sources.detectron2.blueprint.simple_pyramid import SimpleFeaturePyramid
from oomproof.sources.detectron2.blueprint.vit import ViT
from oomproof.sources.detectron2.vitdet.shape import VitShape

Config = Mapping[str, Any]
"""Detectron2's keys in dotted form, every default key present"""


def build_blueprint(config: Config) -> nn.Module:
    """The model that Detectron2 would build. ``model.train()(batch(config, ...))`` gives its losses."""
    made: nn.Module = _choose_builder(config, "MODEL.META_ARCHITECTURE", _MODELS)(config)
    return made


def build_vitdet(config: Config, shape: VitShape) -> nn.Module:
    """The same with a ViT below, which no key of a YAML config names."""
    backbone = SimpleFeaturePyramid(config, ViT(shape), shape.side)
    return GeneralizedRCNN(config, backbone, *_build_region_parts(config, backbone.features))


def _build_generalized_rcnn(config: Config) -> nn.Module:
    return GeneralizedRCNN(config, *_parts(config))


def _proposal_network(config: Config) -> nn.Module:
    backbone = _backbone(config)
    return ProposalNetwork(config, backbone, RPN(config, backbone.features))


def _panoptic(config: Config) -> nn.Module:
    backbone, *others = _parts(config)
    return PanopticFPN(config, _semantic_head(config, backbone), backbone, *others)


def _semantic(config: Config) -> nn.Module:
    backbone = _backbone(config)
    return SemanticSegmentor(config, backbone, _semantic_head(config, backbone))


def _semantic_head(config: Config, backbone: Any) -> nn.Module:
    require_head(config, "MODEL.SEM_SEG_HEAD.NAME", "SemSegFPNHead")
    return SemSegFPNHead(config, backbone.features)


def _parts(config: Config) -> tuple[nn.Module, nn.Module | None, nn.Module]:
    backbone = _backbone(config)
    return backbone, *_build_region_parts(config, backbone.features)


def _build_region_parts(config: Config, features: Mapping[str, Feature]) -> tuple[nn.Module | None, nn.Module]:
    generator = _choose_builder(config, "MODEL.PROPOSAL_GENERATOR.NAME", _GENERATORS)(config, features)
    return generator, _choose_builder(config, "MODEL.ROI_HEADS.NAME", _HEADS)(config, features)


def _backbone(config: Config) -> Any:
    return _choose_builder(config, "MODEL.BACKBONE.NAME", _BACKBONES)(config)


def _fpn(config: Config) -> FPN:
    return FPN(config, ResNet(config), LastLevelMaxPool())


def _retinanet_fpn(config: Config) -> FPN:
    bottom_up = ResNet(config)
    channels = bottom_up.features["res5"].channels
    return FPN(config, bottom_up, LastLevelP6P7(channels, int(config["MODEL.FPN.OUT_CHANNELS"])))


def _choose_builder(config: Config, key: str, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    if config[key] not in known:
        raise InputError(
            f"{key} '{config[key]}' has no blueprint; known are {', '.join(known)}. Install Detectron2 beside oomproof "
            "to trace the real model"
        )
    return known[config[key]]


_MODELS: dict[str, Callable[..., Any]] = {
    "GeneralizedRCNN": _build_generalized_rcnn,
    "ProposalNetwork": _proposal_network,
    "RetinaNet": lambda config: RetinaNet(config, _backbone(config)),
    "PanopticFPN": _panoptic,
    "SemanticSegmentor": _semantic,
}
_BACKBONES: dict[str, Callable[..., Any]] = {
    "build_resnet_backbone": ResNet,
    "build_resnet_fpn_backbone": _fpn,
    "build_retinanet_resnet_fpn_backbone": _retinanet_fpn,
}
_GENERATORS: dict[str, Callable[..., Any]] = {"RPN": RPN, "PrecomputedProposals": lambda config, features: None}
_HEADS: dict[str, Callable[..., Any]] = {
    "StandardROIHeads": StandardROIHeads,
    "CascadeROIHeads": CascadeROIHeads,
    "Res5ROIHeads": Res5ROIHeads,
}
