"""Blueprints have the parts of Detectron2's models: names, parameters, what is frozen, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint.build import build_blueprint
from oomproof.sources.detectron2.config.config import read

# (config, parameters, of them trained), counted in the models that Detectron2 0.6 builds
COUNTS = [
    ("COCO-Detection/faster_rcnn_R_50_FPN_1x", 41699936, 41477536),
    ("COCO-Detection/retinanet_R_50_FPN_1x", 37915572, 37693172),
    ("COCO-Detection/rpn_R_50_C4_1x", 18027787, 17805387),
    ("COCO-Detection/fast_rcnn_R_50_FPN_1x", 41106001, 40883601),
    ("COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x", 44343216, 44120816),
    ("COCO-InstanceSegmentation/mask_rcnn_R_50_C4_1x", 35909612, 35687212),
    ("COCO-InstanceSegmentation/mask_rcnn_R_50_DC5_1x", 172353516, 172131116),
    ("COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x", 59133158, 58910758),
    ("COCO-PanopticSegmentation/panoptic_fpn_R_50_1x", 45973990, 45751590),
    ("LVISv1-InstanceSegmentation/mask_rcnn_X_101_32x8d_FPN_1x", 113471746, 113046594),
    ("Misc/cascade_mask_rcnn_R_50_FPN_1x", 71984926, 71762526),
    ("Misc/cascade_mask_rcnn_X_152_32x8d_FPN_IN5k_gn_dconv", 182487660, 182062508),
    ("Misc/mask_rcnn_R_50_FPN_1x_dconv_c3-c5", 44924058, 44701658),
    ("Misc/mask_rcnn_R_50_FPN_3x_syncbn", 45708208, 45485808),
    ("Misc/panoptic_fpn_R_101_dconv_cascade_gn_3x", 93950192, 93724848),
    ("Misc/scratch_mask_rcnn_R_50_FPN_3x_gn", 45711152, 45711152),
    ("Misc/semantic_R_50_FPN_1x", 28430070, 28207670),
]


def built(name: str, *overrides: Any) -> torch.nn.Module:
    with torch.device("meta"):
        return build_blueprint(read(name, overrides).values)


@pytest.mark.parametrize(("name", "parameters", "trained"), COUNTS, ids=[name for name, *_ in COUNTS])
def test_as_many_parameters_as_detectron2_has(name: str, parameters: int, trained: int) -> None:
    model = built(name)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == trained


@pytest.mark.filterwarnings("ignore")  # Detectron2 was written for older PyTorch, NumPy and Pillow
@pytest.mark.parametrize(
    "name",
    [
        "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x",
        "COCO-InstanceSegmentation/mask_rcnn_R_50_C4_1x",
        "COCO-Detection/retinanet_R_50_FPN_1x",
        "COCO-PanopticSegmentation/panoptic_fpn_R_50_1x",
        "Misc/cascade_mask_rcnn_R_50_FPN_1x",
        "COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x",
    ],
)
def test_names_and_shapes_are_detectron2s_own_where_it_is_installed(name: str) -> None:
    # A part of it: a folder of tests named detectron2 would do as a package without any.
    pytest.importorskip("detectron2.modeling", reason="unproven by CI: needs a built Detectron2, see CONTRIBUTING.md")
    from oomproof.sources.detectron2 import real

    config = read(name)
    with torch.device("meta"):
        ours = build_blueprint(config.values)
    theirs = real.build_real_model(config.values)
    assert {path for path, _ in ours.named_modules()} == {path for path, _ in theirs.named_modules()}
    for kind in ("named_parameters", "named_buffers"):
        shapes = [{path: tuple(t.shape) for path, t in getattr(model, kind)()} for model in (ours, theirs)]
        assert shapes[0] == shapes[1]


def test_modules_have_the_names_that_users_know() -> None:
    paths = dict(built("COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x").named_modules())
    for path in (
        "backbone.bottom_up.stem.conv1.norm",
        "backbone.bottom_up.res2.0.conv1",
        "backbone.bottom_up.res5.2.conv3.norm",
        "backbone.fpn_lateral2",
        "backbone.fpn_output5",
        "proposal_generator.rpn_head.anchor_deltas",
        "roi_heads.box_head.fc2",
        "roi_heads.box_predictor.cls_score",
        "roi_heads.mask_head.mask_fcn4",
        "roi_heads.mask_head.deconv",
    ):
        assert path in paths


@pytest.mark.parametrize("stages", range(6))
def test_freeze_at_freezes_the_first_stages(stages: int) -> None:
    model = built("COCO-Detection/faster_rcnn_R_50_FPN_1x", "MODEL.BACKBONE.FREEZE_AT", stages)
    for number, stage in enumerate(("stem", "res2", "res3", "res4", "res5"), 1):
        part = model.get_submodule(f"backbone.bottom_up.{stage}")
        assert {p.requires_grad for p in part.parameters()} == {number > stages}


def test_frozen_stages_keep_their_statistics() -> None:
    model = built("COCO-Detection/faster_rcnn_R_50_FPN_1x", "MODEL.RESNETS.NORM", "BN")
    kinds = {
        stage: type(model.get_submodule(f"backbone.bottom_up.{stage}.0.conv1.norm")).__name__
        for stage in ("res2", "res3")
    }
    assert kinds == {"res2": "FrozenBatchNorm2d", "res3": "BatchNorm2d"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("MODEL.META_ARCHITECTURE", "PointRend"),
        ("MODEL.BACKBONE.NAME", "build_swin_backbone"),
        ("MODEL.PROPOSAL_GENERATOR.NAME", "RRPN"),
        ("MODEL.ROI_HEADS.NAME", "MyHeads"),
        ("MODEL.ROI_BOX_HEAD.NAME", "MyHead"),
        ("MODEL.ROI_MASK_HEAD.NAME", "CoarseMaskHead"),
        ("MODEL.ROI_BOX_HEAD.POOLER_TYPE", "ROIAlignRotated"),
        ("MODEL.ANCHOR_GENERATOR.NAME", "RotatedAnchorGenerator"),
        ("MODEL.RPN.HEAD_NAME", "MyRPNHead"),
        ("MODEL.RESNETS.NORM", "naiveSyncBN_N"),
    ],
)
def test_what_has_no_blueprint_is_refused_by_its_name(key: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{value}' has no blueprint.*Detectron2"):
        built("COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x", key, value)


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InputError, match=r"18, 34, 50, 101, 152.*got 60"):
        built("COCO-Detection/faster_rcnn_R_50_FPN_1x", "MODEL.RESNETS.DEPTH", 60)
    with pytest.raises(InputError, match=r"names res2; MODEL\.RESNETS\.OUT_FEATURES"):
        built("COCO-Detection/faster_rcnn_R_50_FPN_1x", "MODEL.RESNETS.OUT_FEATURES", ["res3", "res4", "res5"])
    with pytest.raises(InputError, match="CLS_AGNOSTIC_BBOX_REG True"):
        built("Misc/cascade_mask_rcnn_R_50_FPN_1x", "MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG", False)
    with pytest.raises(InputError, match="SIZES has 2 lists for 5 feature maps"):
        built("COCO-Detection/faster_rcnn_R_50_FPN_1x", "MODEL.ANCHOR_GENERATOR.SIZES", [[32], [64]])
    with pytest.raises(InputError, match="Res5ROIHeads has no keypoint head"):
        built("COCO-Detection/faster_rcnn_R_50_C4_1x", "MODEL.KEYPOINT_ON", True)
    with pytest.raises(InputError, match=r"DEPTH 18 goes with MODEL\.RESNETS\.RES2_OUT_CHANNELS 64 only; got 256"):
        built("COCO-Detection/faster_rcnn_R_50_FPN_1x", "MODEL.RESNETS.DEPTH", 18)
    with pytest.raises(InputError, match="RES5_DILATION must be 1 or 2"):
        built("COCO-Detection/faster_rcnn_R_50_FPN_1x", "MODEL.RESNETS.RES5_DILATION", 4)


def test_shallow_resnets_have_basic_blocks() -> None:
    small = ("MODEL.RESNETS.DEPTH", 18, "MODEL.RESNETS.RES2_OUT_CHANNELS", 64)
    model = built("COCO-Detection/faster_rcnn_R_50_FPN_1x", *small)
    backbone = model.get_submodule("backbone.bottom_up")
    # torchvision's ResNet-18 without its last layer; norms that are frozen have no parameters here
    assert sum(p.numel() for p in backbone.parameters()) == 11_689_512 - 513_000 - 2 * 4800
