"""What the published configs of Detectron2 set, in the pieces that they share; zoo.py puts them together by name."""

from __future__ import annotations

from typing import Any

Facts = dict[str, Any]

_SCALES = (640, 672, 704, 736, 768, 800)
COMMON: Facts = {
    "DATASETS.TRAIN": ("coco_2017_train",), "DATASETS.TEST": ("coco_2017_val",), "INPUT.MIN_SIZE_TRAIN": _SCALES,
    "SOLVER.IMS_PER_BATCH": 16, "SOLVER.BASE_LR": 0.02, "SOLVER.STEPS": (60000, 80000), "SOLVER.MAX_ITER": 90000,
}  # fmt: skip
_SEPARATE_HEADS: Facts = {
    "MODEL.ROI_HEADS.NAME": "StandardROIHeads", "MODEL.ROI_BOX_HEAD.NAME": "FastRCNNConvFCHead",
    "MODEL.ROI_BOX_HEAD.NUM_FC": 2, "MODEL.ROI_BOX_HEAD.POOLER_RESOLUTION": 7, "MODEL.ROI_MASK_HEAD.NUM_CONV": 4,
}  # fmt: skip
_STAGES = ["res2", "res3", "res4", "res5"]
FPN: Facts = {
    **COMMON, **_SEPARATE_HEADS,
    "MODEL.BACKBONE.NAME": "build_resnet_fpn_backbone",
    "MODEL.RESNETS.OUT_FEATURES": _STAGES, "MODEL.FPN.IN_FEATURES": _STAGES,
    "MODEL.ANCHOR_GENERATOR.SIZES": [[32], [64], [128], [256], [512]],
    "MODEL.RPN.IN_FEATURES": ["p2", "p3", "p4", "p5", "p6"], "MODEL.ROI_HEADS.IN_FEATURES": ["p2", "p3", "p4", "p5"],
    "MODEL.RPN.PRE_NMS_TOPK_TRAIN": 2000, "MODEL.RPN.PRE_NMS_TOPK_TEST": 1000,
    "MODEL.RPN.POST_NMS_TOPK_TRAIN": 1000,
}  # fmt: skip
DC5: Facts = {
    **COMMON, **_SEPARATE_HEADS,
    "MODEL.RESNETS.OUT_FEATURES": ["res5"], "MODEL.RESNETS.RES5_DILATION": 2,
    "MODEL.RPN.IN_FEATURES": ["res5"], "MODEL.ROI_HEADS.IN_FEATURES": ["res5"],
}  # fmt: skip
RETINANET: Facts = {
    **COMMON,
    "MODEL.META_ARCHITECTURE": "RetinaNet", "MODEL.BACKBONE.NAME": "build_retinanet_resnet_fpn_backbone",
    "MODEL.RESNETS.OUT_FEATURES": _STAGES[1:], "MODEL.FPN.IN_FEATURES": _STAGES[1:],
    "MODEL.ANCHOR_GENERATOR.SIZES": [[x, x * 2 ** (1.0 / 3), x * 2 ** (2.0 / 3)] for x in (32, 64, 128, 256, 512)],
    "MODEL.RETINANET.SMOOTH_L1_LOSS_BETA": 0.0, "SOLVER.BASE_LR": 0.01,
}  # fmt: skip
KEYPOINT: Facts = {
    **FPN,
    "MODEL.KEYPOINT_ON": True, "MODEL.ROI_HEADS.NUM_CLASSES": 1, "MODEL.ROI_BOX_HEAD.SMOOTH_L1_BETA": 0.5,
    "MODEL.RPN.POST_NMS_TOPK_TRAIN": 1500,
    "DATASETS.TRAIN": ("keypoints_coco_2017_train",), "DATASETS.TEST": ("keypoints_coco_2017_val",),
}  # fmt: skip
PANOPTIC: Facts = {
    **FPN,
    "MODEL.META_ARCHITECTURE": "PanopticFPN", "MODEL.MASK_ON": True, "MODEL.SEM_SEG_HEAD.LOSS_WEIGHT": 0.5,
    "DATASETS.TRAIN": ("coco_2017_train_panoptic_separated",),
    "DATASETS.TEST": ("coco_2017_val_panoptic_separated",), "DATALOADER.FILTER_EMPTY_ANNOTATIONS": False,
}  # fmt: skip
BASES: dict[str, Facts] = {
    "Base-RCNN-FPN": FPN, "Base-RCNN-C4": COMMON, "Base-RCNN-DilatedC5": DC5, "Base-RetinaNet": RETINANET,
    "COCO-Keypoints/Base-Keypoint-RCNN-FPN": KEYPOINT, "COCO-PanopticSegmentation/Base-Panoptic-FPN": PANOPTIC,
}  # fmt: skip

_WEIGHTS = "detectron2://ImageNetPretrained/{}.pkl"
_FAIR_STD = [57.375, 57.12, 58.395]
BACKBONES: dict[str, Facts] = {
    "R_50": {"MODEL.WEIGHTS": _WEIGHTS.format("MSRA/R-50")},
    "R_101": {"MODEL.WEIGHTS": _WEIGHTS.format("MSRA/R-101"), "MODEL.RESNETS.DEPTH": 101},
    "X_101_32x8d": {
        "MODEL.WEIGHTS": _WEIGHTS.format("FAIR/X-101-32x8d"), "MODEL.RESNETS.DEPTH": 101,
        "MODEL.PIXEL_STD": _FAIR_STD, "MODEL.RESNETS.STRIDE_IN_1X1": False, "MODEL.RESNETS.NUM_GROUPS": 32,
        "MODEL.RESNETS.WIDTH_PER_GROUP": 8,
    },
}  # fmt: skip
THREE: Facts = {"SOLVER.STEPS": (210000, 250000), "SOLVER.MAX_ITER": 270000}
NINE: Facts = {
    "SOLVER.IMS_PER_BATCH": 64, "SOLVER.STEPS": (187500, 197500), "SOLVER.MAX_ITER": 202500, "SOLVER.BASE_LR": 0.08,
    "TEST.EVAL_PERIOD": 2500, "MODEL.PIXEL_STD": _FAIR_STD, "MODEL.RESNETS.STRIDE_IN_1X1": False,
}  # fmt: skip
SCRATCH: Facts = {"MODEL.WEIGHTS": "", "MODEL.BACKBONE.FREEZE_AT": 0}
MASK: Facts = {"MODEL.MASK_ON": True}
CASCADE: Facts = {
    **MASK, "MODEL.ROI_HEADS.NAME": "CascadeROIHeads", "MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG": True,
    "MODEL.RPN.POST_NMS_TOPK_TRAIN": 2000,
}  # fmt: skip
DEFORMABLE: Facts = {"MODEL.RESNETS.DEFORM_ON_PER_STAGE": [False, True, True, True]}


def _norm(norm: str) -> Facts:
    keys = ("RESNETS", "FPN", "ROI_BOX_HEAD", "ROI_MASK_HEAD")
    heads = {"MODEL.ROI_BOX_HEAD.NUM_CONV": 4, "MODEL.ROI_BOX_HEAD.NUM_FC": 1}
    return {**{f"MODEL.{key}.NORM": norm for key in keys}, **heads}


GN: Facts = {
    **_norm("GN"), "MODEL.RESNETS.STRIDE_IN_1X1": False, "MODEL.WEIGHTS": "catalog://ImageNetPretrained/FAIR/R-50-GN",
}  # fmt: skip
SYNCBN: Facts = {**_norm("SyncBN"), "TEST.PRECISE_BN.ENABLED": True}
ROI_ALIGN_1 = {"POOLER_SAMPLING_RATIO": 2, "POOLER_TYPE": "ROIAlign"}
OLD: Facts = {
    "MODEL.RPN.SMOOTH_L1_BETA": 0.1111, "MODEL.ROI_BOX_HEAD.SMOOTH_L1_BETA": 1.0,
    **{f"MODEL.ROI_BOX_HEAD.{key}": value for key, value in ROI_ALIGN_1.items()},
}  # fmt: skip
ONE_SIZE: Facts = {"INPUT.MIN_SIZE_TRAIN": (800,)}


def lvis(version: str, classes: int) -> Facts:
    return {
        **FPN, **MASK,
        "MODEL.ROI_HEADS.NUM_CLASSES": classes, "MODEL.ROI_HEADS.SCORE_THRESH_TEST": 0.0001,
        "DATASETS.TRAIN": (f"lvis_{version}_train",), "DATASETS.TEST": (f"lvis_{version}_val",),
        "TEST.DETECTIONS_PER_IMAGE": 300, "DATALOADER.SAMPLER_TRAIN": "RepeatFactorTrainingSampler",
        "DATALOADER.REPEAT_THRESHOLD": 0.001,
    }  # fmt: skip


VOC: Facts = {
    "MODEL.ROI_HEADS.NUM_CLASSES": 20, "INPUT.MIN_SIZE_TRAIN": tuple(range(480, 801, 32)),
    "DATASETS.TRAIN": ("voc_2007_trainval", "voc_2012_trainval"), "DATASETS.TEST": ("voc_2007_test",),
    "SOLVER.STEPS": (12000, 16000), "SOLVER.MAX_ITER": 18000, "SOLVER.WARMUP_ITERS": 100,
}  # fmt: skip
CITYSCAPES: Facts = {
    "MODEL.WEIGHTS": "detectron2://COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x/137849600/model_final_f10217.pkl",
    "MODEL.ROI_HEADS.NUM_CLASSES": 8, "INPUT.MIN_SIZE_TRAIN": tuple(range(800, 1025, 32)), "INPUT.MIN_SIZE_TEST": 1024,
    "INPUT.MAX_SIZE_TRAIN": 2048, "INPUT.MAX_SIZE_TEST": 2048,
    "DATASETS.TRAIN": ("cityscapes_fine_instance_seg_train",), "DATASETS.TEST": ("cityscapes_fine_instance_seg_val",),
    "SOLVER.BASE_LR": 0.01, "SOLVER.STEPS": (18000,), "SOLVER.MAX_ITER": 24000, "SOLVER.IMS_PER_BATCH": 8,
    "TEST.EVAL_PERIOD": 8000,
}  # fmt: skip
_PROPOSALS = "detectron2://COCO-Detection/rpn_R_50_FPN_1x/137258492/coco_2017_{}_box_proposals_{}.pkl"
FAST: Facts = {
    "MODEL.LOAD_PROPOSALS": True, "MODEL.PROPOSAL_GENERATOR.NAME": "PrecomputedProposals",
    "DATASETS.PROPOSAL_FILES_TRAIN": (_PROPOSALS.format("train", "21bc3a"),),
    "DATASETS.PROPOSAL_FILES_TEST": (_PROPOSALS.format("val", "ee0dad"),), "DATALOADER.NUM_WORKERS": 2,
}  # fmt: skip
RPN_ONLY: Facts = {"MODEL.META_ARCHITECTURE": "ProposalNetwork", "MODEL.RPN.POST_NMS_TOPK_TEST": 2000}
GIOU: Facts = {
    "MODEL.RPN.BBOX_REG_LOSS_TYPE": "giou", "MODEL.RPN.BBOX_REG_LOSS_WEIGHT": 2.0,
    "MODEL.ROI_BOX_HEAD.BBOX_REG_LOSS_TYPE": "giou", "MODEL.ROI_BOX_HEAD.BBOX_REG_LOSS_WEIGHT": 10.0,
}  # fmt: skip
STUFF: Facts = {
    "MODEL.META_ARCHITECTURE": "SemanticSegmentor",
    "DATASETS.TRAIN": ("coco_2017_train_panoptic_stuffonly",),
    "DATASETS.TEST": ("coco_2017_val_panoptic_stuffonly",),
}  # fmt: skip
PANOPTIC_GN: Facts = {
    "MODEL.WEIGHTS": "catalog://ImageNetPretrained/FAIR/R-101-GN",
    "MODEL.RESNETS.NORM": "GN", "MODEL.FPN.NORM": "GN", "MODEL.ROI_MASK_HEAD.NORM": "GN",
    "MODEL.RESNETS.STRIDE_IN_1X1": False,
    "SOLVER.STEPS": (105000, 125000), "SOLVER.MAX_ITER": 135000, "SOLVER.IMS_PER_BATCH": 32, "SOLVER.BASE_LR": 0.04,
}  # fmt: skip
X152: Facts = {
    "MODEL.WEIGHTS": "catalog://ImageNetPretrained/FAIR/X-152-32x8d-IN5k", "MODEL.RESNETS.DEPTH": 152,
    "MODEL.PIXEL_STD": [1.0, 1.0, 1.0],
    "MODEL.ROI_BOX_HEAD.NUM_CONV": 4, "MODEL.ROI_BOX_HEAD.NUM_FC": 1, "MODEL.ROI_BOX_HEAD.NORM": "GN",
    "MODEL.ROI_MASK_HEAD.NUM_CONV": 8, "MODEL.ROI_MASK_HEAD.NORM": "GN",
    "SOLVER.IMS_PER_BATCH": 128, "SOLVER.STEPS": (35000, 45000), "SOLVER.MAX_ITER": 50000, "SOLVER.BASE_LR": 0.16,
    "INPUT.MIN_SIZE_TRAIN": (640, 864), "INPUT.MIN_SIZE_TRAIN_SAMPLING": "range", "INPUT.MAX_SIZE_TRAIN": 1440,
    "INPUT.CROP.ENABLED": True, "TEST.EVAL_PERIOD": 2500,
}  # fmt: skip
