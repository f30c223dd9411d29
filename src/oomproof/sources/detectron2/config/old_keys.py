"""Names of keys in configs older than version 2, which Detectron2 still reads."""

from __future__ import annotations

_NEW_NAMES = {
    "MODEL.RPN_HEAD.NAME": "MODEL.RPN.HEAD_NAME", "MODEL.WEIGHT": "MODEL.WEIGHTS",
    "MODEL.PANOPTIC_FPN.SEMANTIC_LOSS_SCALE": "MODEL.SEM_SEG_HEAD.LOSS_WEIGHT",
    "MODEL.PANOPTIC_FPN.RPN_LOSS_SCALE": "MODEL.RPN.LOSS_WEIGHT",
    "MODEL.PANOPTIC_FPN.INSTANCE_LOSS_SCALE": "MODEL.PANOPTIC_FPN.INSTANCE_LOSS_WEIGHT",
    "MODEL.PANOPTIC_FPN.COMBINE_ON": "MODEL.PANOPTIC_FPN.COMBINE.ENABLED",
    "MODEL.PANOPTIC_FPN.COMBINE_OVERLAP_THRESHOLD": "MODEL.PANOPTIC_FPN.COMBINE.OVERLAP_THRESH",
    "MODEL.PANOPTIC_FPN.COMBINE_STUFF_AREA_LIMIT": "MODEL.PANOPTIC_FPN.COMBINE.STUFF_AREA_LIMIT",
    "MODEL.PANOPTIC_FPN.COMBINE_INSTANCES_CONFIDENCE_THRESHOLD":
        "MODEL.PANOPTIC_FPN.COMBINE.INSTANCES_CONFIDENCE_THRESH",
    "MODEL.ROI_HEADS.SCORE_THRESH": "MODEL.ROI_HEADS.SCORE_THRESH_TEST",
    "MODEL.ROI_HEADS.NMS": "MODEL.ROI_HEADS.NMS_THRESH_TEST",
    "MODEL.RETINANET.INFERENCE_SCORE_THRESHOLD": "MODEL.RETINANET.SCORE_THRESH_TEST",
    "MODEL.RETINANET.INFERENCE_TOPK_CANDIDATES": "MODEL.RETINANET.TOPK_CANDIDATES_TEST",
    "MODEL.RETINANET.INFERENCE_NMS_THRESHOLD": "MODEL.RETINANET.NMS_THRESH_TEST",
    "TEST.DETECTIONS_PER_IMG": "TEST.DETECTIONS_PER_IMAGE", "TEST.AUG_ON": "TEST.AUG.ENABLED",
    "TEST.AUG_MIN_SIZES": "TEST.AUG.MIN_SIZES", "TEST.AUG_MAX_SIZE": "TEST.AUG.MAX_SIZE",
    "TEST.AUG_FLIP": "TEST.AUG.FLIP",
}  # fmt: skip
_ANCHORS = {
    "ANCHOR_SIZES": "MODEL.ANCHOR_GENERATOR.SIZES",
    "ANCHOR_ASPECT_RATIOS": "MODEL.ANCHOR_GENERATOR.ASPECT_RATIOS",
    "ANCHOR_STRIDES": "",
}


def new_name(key: str, meta_architecture: str) -> str:
    """The key's name in version 2; empty where the key is left out there. RPN and RetinaNet had anchors of their own,
    and only those of the model that is built count."""
    section, _, last = key.rpartition(".")
    if section in ("MODEL.RPN", "MODEL.RETINANET") and last in _ANCHORS:
        counts = (section == "MODEL.RETINANET") == (meta_architecture == "RetinaNet")
        return _ANCHORS[last] if counts else ""
    return _NEW_NAMES.get(key, key)


def old_names(key: str) -> list[str]:
    """Names that a key of version 2 had before."""
    return [old for old, new in (*_NEW_NAMES.items(), *_ANCHORS.items()) if new == key]
