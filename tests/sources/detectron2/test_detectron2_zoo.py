"""The published configs: each as Detectron2 has it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.zoo import configs as zoo

DIGEST = "b2456a8384d5138bbc39405d7f179ffe8d6f262230abfd64bc3b6f018104b5c1"
"""of every published config, resolved; equal to what Detectron2 itself resolves (see the last test)"""


def test_what_they_set_has_not_changed() -> None:
    lines = [
        f"{name} {sorted({**DEFAULTS, **(zoo.find_published(name) or {})}.items())!r}"
        for name in sorted(zoo.list_names())
    ]
    assert len(lines) == 59
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == DIGEST


def test_every_key_exists_and_has_its_type() -> None:
    for name in zoo.list_names():
        for key, value in (zoo.find_published(name) or {}).items():
            assert type(value) is type(DEFAULTS[key]), (name, key)


def test_names() -> None:
    assert zoo.full_name("../Base-RCNN-FPN.yaml") == "Base-RCNN-FPN.yaml"
    assert zoo.full_name("Base-Keypoint-RCNN-FPN.yaml") == "COCO-Keypoints/Base-Keypoint-RCNN-FPN.yaml"
    assert zoo.full_name("x/LVISv1-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml").startswith("LVISv1")
    assert zoo.full_name("mask_rcnn_R_50_FPN_1x.yaml") == "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml"
    assert zoo.full_name("own/keypoint_rcnn_R_50_FPN_1x.yaml") == "COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x.yaml"
    assert zoo.full_name("configs\\COCO-Detection\\rpn_R_50_C4_1x.yaml") == "COCO-Detection/rpn_R_50_C4_1x.yaml"
    weights = "detectron2://COCO-Detection/retinanet_R_50_FPN_3x/190397829/model_final_5bd44e.pkl"
    assert zoo.full_name(weights) == "COCO-Detection/retinanet_R_50_FPN_3x.yaml"
    assert zoo.full_name("detectron2://ImageNetPretrained/MSRA/R-50.pkl") == ""
    for other in ("", "mine.yaml", "mask_rcnn_R_50_FPN_3x.py", "..", "COCO-Detection"):
        assert zoo.full_name(other) == ""


def test_schedules_and_families() -> None:
    facts = zoo.find_published("Misc/scratch_mask_rcnn_R_50_FPN_9x_syncbn.yaml") or {}
    assert facts["SOLVER.IMS_PER_BATCH"] == 64 and facts["MODEL.RESNETS.NORM"] == "SyncBN"
    assert facts["MODEL.BACKBONE.FREEZE_AT"] == 0 and facts["MODEL.WEIGHTS"] == ""
    lvis = zoo.find_published("LVISv0.5-InstanceSegmentation/mask_rcnn_X_101_32x8d_FPN_1x.yaml") or {}
    assert lvis["MODEL.ROI_HEADS.NUM_CLASSES"] == 1230 and lvis["MODEL.RESNETS.NUM_GROUPS"] == 32


def test_detectron2_itself_resolves_them_so() -> None:
    zoo_module = pytest.importorskip(
        "detectron2.model_zoo", reason="unproven by CI: needs a built Detectron2, see CONTRIBUTING.md"
    )
    from detectron2.config import CfgNode, get_cfg

    folder = Path(str(zoo_module.__file__)).parent / "configs"
    found = [each for each in folder.rglob("*.yaml") if "quick_schedules" not in each.parts]
    assert len(found) == 65

    def flat(node: CfgNode, prefix: str = "") -> dict[str, object]:
        every: dict[str, object] = {}
        for key, value in node.items():
            every |= flat(value, f"{prefix}{key}.") if isinstance(value, CfgNode) else {f"{prefix}{key}": value}
        return every

    for path in found:
        cfg = get_cfg()
        cfg.merge_from_file(str(path))
        assert {**DEFAULTS, **(zoo.find_published(path.relative_to(folder).as_posix()) or {})} == flat(cfg), path
