"""Knobs of Detectron2 jobs: names, values, promises, and what each sets beside itself."""

from __future__ import annotations

from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.sources import open_job
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.zoo import configs as zoo
from oomproof.sources.job import Knob
from oomproof.sources.settings import resolve


def knobs_of(name: str, *overrides: str, **given: Any) -> dict[str, Knob]:
    job = open_job(name, overrides)
    return {knob.name: knob for knob in job.knobs(resolve(job, given), About())}


def test_the_batch_keeps_its_size_or_takes_its_schedule_along() -> None:
    knob = knobs_of("mask_rcnn_R_50_FPN_3x.yaml")["SOLVER.IMS_PER_BATCH"]
    kept = [option for option in knob.options if not option.promise]
    assert [option.settings["SOLVER.IMS_PER_BATCH"] * option.settings["accumulate"] for option in kept] == [16] * 5
    assert knob.promise == "equivalent"
    eight = next(option for option in knob.options if option.promise and option.settings["SOLVER.IMS_PER_BATCH"] == 8)
    assert eight.promise == "different" and eight.harm > 0
    assert eight.settings == {
        "SOLVER.IMS_PER_BATCH": 8,
        "accumulate": 1,
        "SOLVER.BASE_LR": 0.01,
        "SOLVER.MAX_ITER": 540000,
        "SOLVER.STEPS": (420000, 500000),
        "SOLVER.WARMUP_ITERS": 2000,
    }
    assert "BASE_LR 0.01" in eight.note


def test_the_batch_is_shared_by_gpus() -> None:
    knob = knobs_of("mask_rcnn_R_50_FPN_3x.yaml", gpus=8)["SOLVER.IMS_PER_BATCH"]
    assert [option.settings["SOLVER.IMS_PER_BATCH"] for option in knob.options] == [16, 8, 8]
    assert "SOLVER.IMS_PER_BATCH" not in knobs_of("mask_rcnn_R_50_FPN_3x.yaml", gpus=16)
    twelve = knobs_of("mask_rcnn_R_50_FPN_3x.yaml", "SOLVER.IMS_PER_BATCH", "12", gpus=2)["SOLVER.IMS_PER_BATCH"]
    assert [option.settings["SOLVER.IMS_PER_BATCH"] for option in twelve.options if not option.promise] == [12, 6, 4, 2]


def test_smaller_images_take_anchors_and_tests_along() -> None:
    knob = knobs_of("retinanet_R_50_FPN_1x.yaml")["INPUT.MIN_SIZE_TRAIN"]
    assert knob.promise == "different"
    half = knob.options[4].settings
    assert max(half["INPUT.MIN_SIZE_TRAIN"]) == 480 and half["INPUT.MAX_SIZE_TRAIN"] == 800
    assert half["INPUT.MIN_SIZE_TEST"] == 480 and half["image_size"] == (480, 800)
    assert half["MODEL.ANCHOR_GENERATOR.SIZES"][0][0] == pytest.approx(32 * 0.6)
    assert len(half["INPUT.MIN_SIZE_TRAIN"]) == 6
    semantic = knobs_of("semantic_R_50_FPN_1x.yaml")["INPUT.MIN_SIZE_TRAIN"]
    assert "MODEL.ANCHOR_GENERATOR.SIZES" not in semantic.options[1].settings


def test_amp_sets_the_precision() -> None:
    knob = knobs_of("mask_rcnn_R_50_FPN_3x.yaml")["SOLVER.AMP.ENABLED"]
    assert knob.options[1].settings == {"SOLVER.AMP.ENABLED": True, "precision": "fp16"}
    assert "SOLVER.AMP.ENABLED" not in knobs_of("mask_rcnn_R_50_FPN_3x.yaml", "SOLVER.AMP.ENABLED", "True")


def test_lighter_backbones_come_with_their_weights() -> None:
    knob = knobs_of("faster_rcnn_X_101_32x8d_FPN_3x.yaml")["MODEL.RESNETS.DEPTH"]
    lighter, lightest = knob.options[1:]
    assert lighter.settings["MODEL.RESNETS.NUM_GROUPS"] == 1 and "MODEL.RESNETS.DEPTH" not in lighter.settings
    assert lightest.settings["MODEL.RESNETS.DEPTH"] == 50 and "R-50.pkl" in lightest.settings["MODEL.WEIGHTS"]
    assert 0 < lighter.harm < lightest.harm
    assert "43.0 -> 40.2" in lightest.note
    assert "MODEL.RESNETS.DEPTH" not in knobs_of("faster_rcnn_R_50_FPN_3x.yaml")
    assert "MODEL.RESNETS.DEPTH" not in knobs_of("faster_rcnn_R_101_FPN_3x.yaml", "MODEL.WEIGHTS", "mine.pth")


def test_random_weights_are_not_frozen() -> None:
    frozen = knobs_of("mask_rcnn_R_50_FPN_3x.yaml")["MODEL.BACKBONE.FREEZE_AT"]
    assert [option.value for option in frozen.options] == [2, 3, 4, 5]
    in_c4 = knobs_of("mask_rcnn_R_50_C4_3x.yaml")["MODEL.BACKBONE.FREEZE_AT"]
    assert [option.value for option in in_c4.options] == [2, 3, 4]
    assert "MODEL.BACKBONE.FREEZE_AT" not in knobs_of("scratch_mask_rcnn_R_50_FPN_3x_gn.yaml")


def test_only_what_the_model_has() -> None:
    names = set(knobs_of("retinanet_R_50_FPN_1x.yaml"))
    assert not {name for name in names if "ROI" in name or "RPN" in name}
    assert "MODEL.RPN.PRE_NMS_TOPK_TRAIN" not in knobs_of("fast_rcnn_R_50_FPN_1x.yaml")
    assert "DATALOADER.ASPECT_RATIO_GROUPING" not in names
    mixed = knobs_of("retinanet_R_50_FPN_1x.yaml", "DATALOADER.ASPECT_RATIO_GROUPING", "False")
    assert mixed["DATALOADER.ASPECT_RATIO_GROUPING"].options[1].settings["image_size"] == (800, 1333)


def test_every_option_names_keys_that_the_job_takes() -> None:
    for name in ("mask_rcnn_X_101_32x8d_FPN_3x.yaml", "retinanet_R_101_FPN_3x.yaml", "panoptic_fpn_R_50_3x.yaml"):
        job = open_job(name)
        assert isinstance(job, Detectron2Job)
        present = resolve(job, {})
        for knob in job.knobs(present, About()):
            first, *others = knob.options
            assert all(present.get(key, job.config.values.get(key)) == value for key, value in first.settings.items())
            for option in others:
                assert any({**job.config.values, **present}[key] != value for key, value in option.settings.items())


def test_a_batch_that_gpus_cannot_share() -> None:
    with pytest.raises(InputError, match=r"16 must be divisible by the number of GPUs, 3; take 15 or 18"):
        knobs_of("mask_rcnn_R_50_FPN_3x.yaml", gpus=3)
    with pytest.raises(InputError, match=r"16 must be divisible by SOLVER.REFERENCE_WORLD_SIZE 3"):
        knobs_of("mask_rcnn_R_50_FPN_3x.yaml", "SOLVER.REFERENCE_WORLD_SIZE", "3")
    with pytest.raises(InputError, match="gpus must be at least 1"):
        knobs_of("mask_rcnn_R_50_FPN_3x.yaml", gpus=0)
    with pytest.raises(InputError, match="at least 1"):
        knobs_of("mask_rcnn_R_50_FPN_3x.yaml", "SOLVER.IMS_PER_BATCH", "0")


def test_every_published_config_opens() -> None:
    for name in zoo.list_names():
        job = open_job(name)
        assert isinstance(job, Detectron2Job) and not job.config.notes
        found = job.knobs(resolve(job, {"gpus": 8}), About())
        assert {"checkpoint", "SOLVER.AMP.ENABLED", "INPUT.MIN_SIZE_TRAIN"} <= {knob.name for knob in found}
        assert all(len({str(option.value) for option in knob.options}) == len(knob.options) for knob in found)


def test_a_single_worker_may_still_be_done_without() -> None:
    """No knob turns the last one off, but what would help where even one is too many is looked up by its knob."""
    name = "DATALOADER.NUM_WORKERS"
    given = {count: knobs_of("mask_rcnn_R_50_FPN_3x.yaml", name, str(count)) for count in (3, 1, 0)}
    assert [option.value for option in given[3][name].options] == [3, 2, 1]
    assert [option.value for option in given[1][name].options] == [1]
    assert name not in given[0]
