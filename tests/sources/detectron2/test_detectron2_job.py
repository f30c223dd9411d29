"""Detectron2 jobs: settings that follow from keys, notes, and traces of whole steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from detectron2_samples import SAMPLES

import oomproof
from oomproof.errors import InputError
from oomproof.memory.forecast import Forecast
from oomproof.sources import open_job
from oomproof.sources.detectron2.config.keys import idle
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.notes import notes
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

SMALL = ("INPUT.MIN_SIZE_TRAIN", "(128,)", "INPUT.MAX_SIZE_TRAIN", "192", "SOLVER.IMS_PER_BATCH", "2")


def checked(name: str, *overrides: str, **given: Any) -> Forecast:
    settings = {"boxes": 8, "real": False, **given}
    return oomproof.check(open_job(name, (*SMALL, *overrides)), on="V100", **settings)


def test_settings_follow_keys() -> None:
    job = open_job("mask_rcnn_R_50_FPN_3x.yaml")
    plain = resolve(job, {})
    assert (plain["precision"], plain["ddp"], plain["workers"], plain["image_size"]) == ("fp32", False, 4, (800, 1333))
    keys = {"SOLVER.AMP.ENABLED": "True", "gpus": "8", "DATALOADER.NUM_WORKERS": "2", "INPUT.MIN_SIZE_TRAIN": "(600,)"}
    other = resolve(job, {**keys, "CUDNN_BENCHMARK": "True"})
    assert (other["precision"], other["ddp"], other["workers"], other["image_size"]) == ("fp16", True, 2, (600, 1333))
    assert other["cudnn_benchmark"] is True
    assert resolve(job, {**keys, "precision": "bf16", "ddp": "false"})["precision"] == "bf16"
    with pytest.raises(InputError, match="must be a tuple"):
        resolve(job, {"INPUT.MIN_SIZE_TRAIN": "600"})


def test_upright_and_lying_images_in_one_batch_make_it_square() -> None:
    job = open_job("mask_rcnn_R_50_FPN_3x.yaml", ("DATALOADER.ASPECT_RATIO_GROUPING", "False"))
    assert resolve(job, {})["image_size"] == (1333, 1333)
    assert resolve(job, {"SOLVER.IMS_PER_BATCH": "1"})["image_size"] == (800, 1333)
    assert resolve(job, {"INPUT.MAX_SIZE_TRAIN": "700"})["image_size"] == (700, 700)


def test_sizes_that_the_config_does_not_say() -> None:
    job = open_job("mask_rcnn_R_50_FPN_3x.yaml", ("INPUT.MIN_SIZE_TRAIN", "(0,)"))
    with pytest.raises(InputError, match="--image-size"):
        resolve(job, {})
    assert resolve(job, {"image_size": "480x640"})["image_size"] == (480, 640)


@pytest.mark.parametrize(
    ("given", "beyond"),
    [
        ({}, False),
        ({"image_size": "1333x800"}, False),
        ({"image_size": "480x640"}, False),
        ({"image_size": "800x1600"}, True),
        ({"image_size": "1000x1333"}, True),
        ({"image_size": "1000x1333", "DATALOADER.ASPECT_RATIO_GROUPING": "False"}, False),
        ({"image_size": "800x1333", "INPUT.MIN_SIZE_TRAIN": "(600,)"}, True),
        ({"image_size": "2000x3000", "INPUT.MIN_SIZE_TRAIN": "(0,)"}, False),
    ],
    ids=str,
)
def test_images_that_the_config_makes_smaller_are_said(given: dict[str, Any], beyond: bool) -> None:
    job = open_job("mask_rcnn_R_50_FPN_3x.yaml")
    settings = resolve(job, {"real": "false", **given})
    found = [note for note in notes(job.config, job.values(settings), settings) if "makes images smaller" in note]
    assert bool(found) == beyond
    assert all("INPUT.MAX_SIZE_TRAIN 1333" in note for note in found)


def test_architectures_that_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("MODEL:\n  META_ARCHITECTURE: FCOS\n")
    with pytest.raises(
        InputError, match=r"other.yaml:2: MODEL.META_ARCHITECTURE FCOS .* supported are GeneralizedRCNN"
    ):
        open_job(str(path))


def test_overrides_are_for_detectron2_alone() -> None:
    with pytest.raises(InputError, match="--set NAME=VALUE"):
        open_job("torchvision:resnet18", ("SOLVER.IMS_PER_BATCH", "8"))


def test_keys_that_are_there_and_do_nothing() -> None:
    values = dict(open_job_values("retinanet_R_50_FPN_1x.yaml"))
    assert idle("MODEL.RPN.PRE_NMS_TOPK_TRAIN", values) == "MODEL.META_ARCHITECTURE is RetinaNet"
    assert idle("MODEL.RETINANET.NUM_CLASSES", values) == ""
    faster = dict(open_job_values("faster_rcnn_R_50_FPN_1x.yaml"))
    assert idle("MODEL.ROI_MASK_HEAD.NUM_CONV", faster) == "MODEL.MASK_ON is False"
    assert idle("MODEL.ROI_BOX_HEAD.NUM_CONV", faster) == ""
    assert idle("MODEL.ROI_BOX_CASCADE_HEAD.IOUS", faster) == "MODEL.ROI_HEADS.NAME is StandardROIHeads"
    assert idle("SOLVER.CLIP_GRADIENTS.CLIP_VALUE", faster) == "SOLVER.CLIP_GRADIENTS.ENABLED is False"
    assert idle("SOLVER.CLIP_GRADIENTS.ENABLED", faster) == ""


def open_job_values(name: str) -> dict[str, Any]:
    job = open_job(name)
    assert isinstance(job, Detectron2Job)
    return dict(job.config.values)


@pytest.mark.slow
def test_a_step_is_traced_and_its_notes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("_BASE_: COCO-Detection/faster_rcnn_R_50_FPN_1x.yaml\nMODEL:\n  ROI_MASK_HEAD:\n    NUM_CONV: 6\n")
    found = checked(str(path))
    assert found.job == str(path)
    assert any(owner.startswith("backbone.bottom_up") for owner, _ in found.owners)
    told = "\n".join(found.notes)
    assert "does nothing here, since MODEL.MASK_ON is False: MODEL.ROI_MASK_HEAD.NUM_CONV" in told
    assert "a blueprint of Detectron2's model was traced" in told
    assert "_BASE_ COCO-Detection/faster_rcnn_R_50_FPN_1x.yaml is not there" in told


@pytest.mark.thorough
@pytest.mark.slow
def test_what_costs_memory_shows() -> None:
    plain = checked("faster_rcnn_R_50_FPN_1x.yaml")
    assert (
        checked("faster_rcnn_R_50_FPN_1x.yaml", gpus=2, **{"SOLVER.IMS_PER_BATCH": 4}).kinds["gradient"]
        > 1.5 * (plain.kinds["gradient"])
    )  # DDP's buckets; the share of each GPU is the same
    assert checked("faster_rcnn_R_50_FPN_1x.yaml", "SOLVER.MOMENTUM", "0.0").kinds.get("optimizer", 0) == 0
    clipped = checked("faster_rcnn_R_50_FPN_1x.yaml", "SOLVER.CLIP_GRADIENTS.ENABLED", "True")
    assert clipped.allocated.expected >= plain.allocated.expected
    assert checked("faster_rcnn_R_50_FPN_1x.yaml", **{"SOLVER.IMS_PER_BATCH": 4}).allocated.expected > (
        1.1 * plain.allocated.expected
    )
    assert checked("faster_rcnn_R_50_FPN_1x.yaml", "MODEL.BACKBONE.FREEZE_AT", "5").allocated.expected < (
        plain.allocated.expected
    )


def test_reading_a_config_imports_no_framework() -> None:
    code = (
        "import sys; from oomproof.sources import open_job; open_job('mask_rcnn_R_50_FPN_3x.yaml'); "
        f"open_job({str(SAMPLES / 'child.yaml')!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_real_thing_is_asked_for_only_where_it_is() -> None:
    job = open_job("mask_rcnn_R_50_FPN_3x.yaml")
    real = next(setting for setting in job.settings if setting.name == "real")
    if not real.default:
        with pytest.raises(InputError, match="real=true"):
            job.trace(TraceRequest(resolve(job, {"real": True})))


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("Cityscapes/mask_rcnn_R_50_FPN.yaml", 114),
        ("LVISv0.5-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml", 450),
        ("LVISv1-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml", 750),
    ],
)
def test_datasets_more_crowded_than_coco_are_told(name: str, most: int) -> None:
    job = open_job(name)

    def told(**given: Any) -> str:
        settings = resolve(job, given)
        return "\n".join(notes(job.config, job.values(settings), settings))

    assert f"--set boxes={most}" in told() and "as in COCO's most crowded" not in told()
    assert "--set boxes=" not in told(boxes=most), "the user has said how many there are"
