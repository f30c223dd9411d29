"""The keys of Detectron2 that decide about memory, as settings of a job; the other keys can be overridden too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.values import check_value, decode
from oomproof.sources.job import Role, Setting

_HELP = {
    "SOLVER.IMS_PER_BATCH": "images a step, of all GPUs together",
    "SOLVER.REFERENCE_WORLD_SIZE": "GPUs that the config was written for: Detectron2 rescales it to --gpus; 0: never",
    "SOLVER.AMP.ENABLED": "automatic mixed precision, in fp16",
    "SOLVER.MOMENTUM": "of SGD; 0 keeps no state",
    "SOLVER.CLIP_GRADIENTS.ENABLED": "gradients are clipped before the update",
    "SOLVER.BASE_LR": "learning rate for the whole batch",
    "SOLVER.MAX_ITER": "steps of the training",
    "SOLVER.STEPS": "steps at which the learning rate falls",
    "SOLVER.WARMUP_ITERS": "steps in which the learning rate rises",
    "INPUT.MIN_SIZE_TRAIN": "shorter side of a training image, one of these, in pixels",
    "INPUT.MAX_SIZE_TRAIN": "longest that the longer side may become, in pixels",
    "DATALOADER.ASPECT_RATIO_GROUPING": "batches hold upright or lying images, never both",
    "DATALOADER.NUM_WORKERS": "data loading processes of each GPU",
    "CUDNN_BENCHMARK": "the fastest convolutions, whatever workspace they take",
    "MODEL.WEIGHTS": "what the training starts from; never loaded here",
    "MODEL.BACKBONE.FREEZE_AT": "stages of the backbone that are not trained; the stem is the first",
    "MODEL.RESNETS.DEPTH": "layers of the ResNet",
    "MODEL.RESNETS.NORM": "normalisation in the backbone: FrozenBN, BN, SyncBN, GN",
    "MODEL.ANCHOR_GENERATOR.SIZES": "sides of the anchors, a list for each feature map",
    "MODEL.RPN.BATCH_SIZE_PER_IMAGE": "anchors of an image that the RPN is trained on",
    "MODEL.RPN.PRE_NMS_TOPK_TRAIN": "proposals before NMS in training, of each feature map",
    "MODEL.RPN.POST_NMS_TOPK_TRAIN": "proposals of an image after NMS in training",
    "MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE": "regions of an image that the heads are trained on",
    "MODEL.ROI_HEADS.NUM_CLASSES": "classes, background not counted",
    "MODEL.RETINANET.NUM_CLASSES": "classes, background not counted",
    "MODEL.SEM_SEG_HEAD.NUM_CLASSES": "classes of the semantic head",
    "MODEL.MASK_ON": "masks are predicted",
    "MODEL.KEYPOINT_ON": "keypoints are predicted",
    "DATASETS.PRECOMPUTED_PROPOSAL_TOPK_TRAIN": "proposals of an image that are read from a file",
}

UNTOLD = "not known"
"""stands for the value of a key that only a run of the script tells"""

SUPPORTED = ("GeneralizedRCNN", "ProposalNetwork", "RetinaNet", "PanopticFPN", "SemanticSegmentor")
"""values of MODEL.META_ARCHITECTURE that can be forecast"""

_PARTS: Mapping[str, tuple[str, ...]] = {
    "MODEL.PROPOSAL_GENERATOR": ("GeneralizedRCNN", "ProposalNetwork", "PanopticFPN"),
    "MODEL.RPN": ("GeneralizedRCNN", "ProposalNetwork", "PanopticFPN"),
    "MODEL.ROI_HEADS": ("GeneralizedRCNN", "PanopticFPN"),
    "MODEL.ROI_BOX_HEAD": ("GeneralizedRCNN", "PanopticFPN"),
    "MODEL.ROI_BOX_CASCADE_HEAD": ("GeneralizedRCNN", "PanopticFPN"),
    "MODEL.ROI_MASK_HEAD": ("GeneralizedRCNN", "PanopticFPN"),
    "MODEL.ROI_KEYPOINT_HEAD": ("GeneralizedRCNN", "PanopticFPN"),
    "MODEL.MASK_ON": ("GeneralizedRCNN", "PanopticFPN"),
    "MODEL.KEYPOINT_ON": ("GeneralizedRCNN", "PanopticFPN"),
    "MODEL.ANCHOR_GENERATOR": ("GeneralizedRCNN", "ProposalNetwork", "PanopticFPN", "RetinaNet"),
    "MODEL.RETINANET": ("RetinaNet",),
    "MODEL.SEM_SEG_HEAD": ("PanopticFPN", "SemanticSegmentor"),
    "MODEL.PANOPTIC_FPN": ("PanopticFPN",),
}
"""which architectures read a section"""


_ROLES: Mapping[str, Role] = {
    "SOLVER.IMS_PER_BATCH": "batch",
    "SOLVER.REFERENCE_WORLD_SIZE": "reference gpus",
    "DATALOADER.NUM_WORKERS": "workers",
}


_NOT_OF_MEMORY = re.compile(
    r"(OUTPUT_DIR|SEED|VIS_PERIOD|VERSION|GLOBAL|TEST|DATASETS\.(TRAIN|TEST|PROPOSAL_FILES)|MODEL\.(WEIGHTS|DEVICE|PIXEL_)"
    r"|INPUT\.(MIN_SIZE_TEST|MAX_SIZE_TEST|RANDOM_FLIP|FORMAT|MIN_SIZE_TRAIN_SAMPLING)"
    r"|DATALOADER\.(SAMPLER_TRAIN|REPEAT|FILTER_EMPTY)|MODEL\.PANOPTIC_FPN"
    r"|SOLVER\.(LR_SCHEDULER|MAX_ITER|BASE_LR|GAMMA|STEPS|NUM_DECAYS|WARMUP|RESCALE|CHECKPOINT_PERIOD|BIAS_LR)).*"
    r"|.*(_TEST|LOSS_WEIGHT|SMOOTH_L1_BETA|SMOOTH_L1_LOSS_BETA|FOCAL_LOSS_GAMMA|FOCAL_LOSS_ALPHA|PRIOR_PROB|BBOX_REG_WEIGHTS)"
)
"""keys that a forecast does not read: where nobody knows them, it is the same"""


def matters(key: str, values: Mapping[str, Any]) -> bool:
    """Whether a forecast of this config depends on the key."""
    return not _NOT_OF_MEMORY.fullmatch(key) and not idle(key, values)


def settings(values: Mapping[str, Any], unknown: Mapping[str, str] = MappingProxyType({})) -> tuple[Setting, ...]:
    """One setting for each key that can matter for the memory of this config; one that nobody knows must be given."""
    missing = [key for key in unknown if matters(key, values)]
    found = [key for key in _HELP if not idle(key, values)]
    found += [key for key in missing if key not in found]
    return tuple(
        Setting(
            key,
            UNTOLD if key in missing else values[key],
            _help(key, unknown) if key in missing else _HELP[key],
            read=_reader(key),
            role=_ROLES.get(key),
            given_as=f"{key} {{value}}",
            follows=_asks_for(key, missing, unknown) if key in missing else None,
        )
        for key in found
    )


def _help(key: str, unknown: Mapping[str, str]) -> str:
    return "; ".join(each for each in (_HELP.get(key, ""), f"must be given: {unknown[key]}") if each)


def _asks_for(key: str, missing: Sequence[str], unknown: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Any]:
    """Raises where the user does not give the key; names all at once, so that one more try is enough."""
    every = [key, *(each for each in missing if each not in (key, "SOLVER.IMS_PER_BATCH"))]

    def ask(_: Mapping[str, Any]) -> Any:
        more = (
            f" (and so are {', '.join(every[1:])})"
            if len(every) > 2
            else f" (and so is {every[1]})"
            if every[1:]
            else ""
        )
        pairs = " ".join(f"{each} VALUE" for each in every)
        raise InputError(f"{unknown[key]}{more}; give it behind the job: {pairs}")

    return ask


def idle(key: str, values: Mapping[str, Any]) -> str:
    """Why a key that exists does nothing in this config; empty where it does, or may do, something."""
    meta = values["MODEL.META_ARCHITECTURE"]
    for part, users in _PARTS.items():
        if (key == part or key.startswith(f"{part}.")) and meta in SUPPORTED and meta not in users:
            return f"MODEL.META_ARCHITECTURE is {meta}"
    section = key.rpartition(".")[0]
    conditions = (
        ("MODEL.ROI_MASK_HEAD", not values["MODEL.MASK_ON"], "MODEL.MASK_ON is False"),
        ("MODEL.ROI_KEYPOINT_HEAD", not values["MODEL.KEYPOINT_ON"], "MODEL.KEYPOINT_ON is False"),
        (
            "MODEL.ROI_BOX_CASCADE_HEAD",
            values["MODEL.ROI_HEADS.NAME"] in ("StandardROIHeads", "Res5ROIHeads"),
            f"MODEL.ROI_HEADS.NAME is {values['MODEL.ROI_HEADS.NAME']}",
        ),
        (
            "MODEL.FPN",
            values["MODEL.BACKBONE.NAME"] == "build_resnet_backbone",
            "MODEL.BACKBONE.NAME is build_resnet_backbone",
        ),
        (
            "MODEL.RPN",
            values["MODEL.PROPOSAL_GENERATOR.NAME"] == "PrecomputedProposals",
            "MODEL.PROPOSAL_GENERATOR.NAME is PrecomputedProposals",
        ),
        ("INPUT.CROP", not values["INPUT.CROP.ENABLED"] and not key.endswith("ENABLED"), "INPUT.CROP.ENABLED is False"),
        (
            "SOLVER.CLIP_GRADIENTS",
            not values["SOLVER.CLIP_GRADIENTS.ENABLED"] and not key.endswith("ENABLED"),
            "SOLVER.CLIP_GRADIENTS.ENABLED is False",
        ),
    )
    found = next((why for part, off, why in conditions if section == part and off), "")
    if not found and key == "DATASETS.PRECOMPUTED_PROPOSAL_TOPK_TRAIN" and not values["MODEL.LOAD_PROPOSALS"]:
        return "MODEL.LOAD_PROPOSALS is False"
    return found


def _reader(key: str) -> Any:
    return lambda value: check_value(key, decode(value), "settings")
