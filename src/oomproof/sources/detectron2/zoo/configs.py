"""The configs that Detectron2 publishes (its ``configs/`` folder) by name: what each sets, its bases included.

    >>> find_published("COCO-Detection/retinanet_R_50_FPN_3x.yaml")["SOLVER.MAX_ITER"]
    270000

The few under ``quick_schedules``, which test Detectron2 itself, are left out.
"""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath

from oomproof.sources.detectron2.zoo import parts as facts
from oomproof.sources.detectron2.zoo.parts import Facts

_SUFFIXES = (".yaml", ".yml")


def find_published(name: str) -> Facts | None:
    """What the config ``name`` sets, or None where Detectron2 publishes none of that name."""
    found = full_name(name)
    return dict(_table()[found.removesuffix(".yaml")]) if found else None


def full_name(name: str) -> str:
    """The zoo's own name for what a user wrote: with or without ``configs/``, its folder, its suffix; or for weights,
    ``detectron2://FOLDER/NAME/...``. Empty where there is none. A file name that several folders have is COCO's."""
    scheme, separator, rest = name.partition("://")
    path = PurePosixPath((rest if separator and scheme == "detectron2" else name).replace("\\", "/"))
    parts = tuple(part for part in path.parts if part not in (".", "..", "configs", "/"))
    if separator and path.suffix == ".pkl":
        return f"{parts[0]}/{parts[1]}.yaml" if len(parts) > 1 and f"{parts[0]}/{parts[1]}" in _table() else ""
    if not parts or path.suffix.lower() not in (*_SUFFIXES, ""):
        return ""
    last = parts[-1].removesuffix(path.suffix)
    if len(parts) > 1 and f"{parts[-2]}/{last}" in _table():
        return f"{parts[-2]}/{last}.yaml"
    return next((f"{known}.yaml" for known in _table() if known.rpartition("/")[2] == last), "")


def list_names() -> tuple[str, ...]:
    """Every published config that can be trained: bases are left out."""
    return tuple(f"{name}.yaml" for name in _table() if "Base-" not in name)


@cache
def _table() -> dict[str, Facts]:
    return {**facts.BASES, **_coco(), **_other_data(), **_comparisons(), **_misc()}


def _coco() -> dict[str, Facts]:
    """The baselines: every family on every backbone that it was published with, for 90k (1x) or 270k (3x) steps."""
    table: dict[str, Facts] = {}
    rcnn = {"C4": facts.COMMON, "DC5": facts.DC5, "FPN": facts.FPN}
    runs = ("R_50 1x", "R_50 3x", "R_101 3x")
    for folder, family, extra in (
        ("COCO-Detection", "faster_rcnn", {}),
        ("COCO-InstanceSegmentation", "mask_rcnn", facts.MASK),
    ):
        for neck, base in rcnn.items():
            for run in (*runs, "X_101_32x8d 3x") if neck == "FPN" else runs:
                backbone, schedule = run.split()
                table[f"{folder}/{family}_{backbone}_{neck}_{schedule}"] = _merge(base, extra, backbone, schedule)
    for run in runs:
        backbone, schedule = run.split()
        table[f"COCO-Detection/retinanet_{backbone}_FPN_{schedule}"] = _merge(facts.RETINANET, {}, backbone, schedule)
        panoptic = f"COCO-PanopticSegmentation/panoptic_fpn_{backbone}_{schedule}"
        table[panoptic] = _merge(facts.PANOPTIC, {}, backbone, schedule)
    for run in (*runs, "X_101_32x8d 3x"):
        backbone, schedule = run.split()
        table[f"COCO-Keypoints/keypoint_rcnn_{backbone}_FPN_{schedule}"] = _merge(
            facts.KEYPOINT, {}, backbone, schedule
        )
    c4_rpn = {**facts.RPN_ONLY, "MODEL.RPN.PRE_NMS_TOPK_TEST": 12000}
    table["COCO-Detection/rpn_R_50_C4_1x"] = _merge(facts.COMMON, c4_rpn, "R_50", "1x")
    table["COCO-Detection/rpn_R_50_FPN_1x"] = _merge(facts.FPN, facts.RPN_ONLY, "R_50", "1x")
    table["COCO-Detection/fast_rcnn_R_50_FPN_1x"] = _merge(facts.FPN, facts.FAST, "R_50", "1x")
    giou = {**facts.MASK, **facts.GIOU}
    table["COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x_giou"] = _merge(facts.FPN, giou, "R_50", "1x")
    return table


def _other_data() -> dict[str, Facts]:
    longer = {"SOLVER.STEPS": (120000, 160000), "SOLVER.MAX_ITER": 180000}
    table = {
        "Cityscapes/mask_rcnn_R_50_FPN": {**facts.FPN, **facts.MASK, **facts.CITYSCAPES},
        "PascalVOC-Detection/faster_rcnn_R_50_C4": _merge(facts.COMMON, facts.VOC, "R_50", ""),
        "PascalVOC-Detection/faster_rcnn_R_50_FPN": _merge(facts.FPN, facts.VOC, "R_50", ""),
    }
    for version, classes, schedule in (("v0.5", 1230, {}), ("v1", 1203, longer)):
        for backbone in facts.BACKBONES:
            name = f"LVIS{version}-InstanceSegmentation/mask_rcnn_{backbone}_FPN_1x"
            table[name] = _merge(facts.lvis(version, classes), schedule, backbone, "1x")
    return table


def _comparisons() -> dict[str, Facts]:
    """Settings of the first Detectron, for comparison with it."""
    masks = {f"MODEL.ROI_MASK_HEAD.{key}": value for key, value in facts.ROI_ALIGN_1.items()}
    points = {f"MODEL.ROI_KEYPOINT_HEAD.{key}": value for key, value in facts.ROI_ALIGN_1.items()}
    folder = "Detectron1-Comparisons"
    faster, mask = {**facts.OLD, **facts.ONE_SIZE}, {**facts.OLD, **facts.ONE_SIZE, **facts.MASK, **masks}
    return {
        f"{folder}/faster_rcnn_R_50_FPN_noaug_1x": _merge(facts.FPN, faster, "R_50", "1x"),
        f"{folder}/mask_rcnn_R_50_FPN_noaug_1x": _merge(facts.FPN, mask, "R_50", "1x"),
        f"{folder}/keypoint_rcnn_R_50_FPN_1x": _merge(facts.KEYPOINT, {**facts.OLD, **points}, "R_50", "1x"),
    }


def _misc() -> dict[str, Facts]:
    mask, deformable = {**facts.FPN, **facts.MASK}, facts.DEFORMABLE
    agnostic = {"MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG": True, "MODEL.ROI_MASK_HEAD.CLS_AGNOSTIC_MASK": True}
    group_norm, sync = _merge(mask, {}, "R_50", "3x", facts.GN), _merge(mask, {}, "R_50", "3x", facts.SYNCBN)
    scratch = facts.SCRATCH
    table = {
        **{f"cascade_mask_rcnn_R_50_FPN_{run}": _merge(facts.FPN, facts.CASCADE, "R_50", run) for run in ("1x", "3x")},
        "mask_rcnn_R_50_FPN_1x_cls_agnostic": _merge(mask, agnostic, "R_50", "1x"),
        **{f"mask_rcnn_R_50_FPN_{run}_dconv_c3-c5": _merge(mask, deformable, "R_50", run) for run in ("1x", "3x")},
        "mask_rcnn_R_50_FPN_3x_gn": group_norm,
        "mask_rcnn_R_50_FPN_3x_syncbn": sync,
        "scratch_mask_rcnn_R_50_FPN_3x_gn": {**group_norm, **scratch},
        "scratch_mask_rcnn_R_50_FPN_9x_gn": {**group_norm, **scratch, **facts.NINE},
        "scratch_mask_rcnn_R_50_FPN_9x_syncbn": {**sync, **scratch, **facts.NINE},
        "semantic_R_50_FPN_1x": _merge(facts.FPN, facts.STUFF, "R_50", "1x"),
        "panoptic_fpn_R_101_dconv_cascade_gn_3x": {
            **_merge(facts.PANOPTIC, {**facts.CASCADE, **deformable}, "R_101", ""), **facts.PANOPTIC_GN,
        },
        "cascade_mask_rcnn_X_152_32x8d_FPN_IN5k_gn_dconv": {
            **_merge(facts.FPN, {**facts.CASCADE, **deformable}, "X_101_32x8d", ""), **facts.X152,
        },
    }  # fmt: skip
    return {f"Misc/{name}": values for name, values in table.items()}


def _merge(base: Facts, extra: Facts, backbone: str, schedule: str, last: Facts | None = None) -> Facts:
    three = facts.THREE if schedule == "3x" else {}
    return {**base, **extra, **facts.BACKBONES[backbone], **three, **(last or {})}
