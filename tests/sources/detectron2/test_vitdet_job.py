"""ViTDet by the names of its configs: which are known, what may be set, and what is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.sources import open_job
from oomproof.sources.detectron2.vitdet.job import VitdetJob, open_vitdet
from oomproof.sources.detectron2.vitdet.knobs import list_knobs
from oomproof.sources.detectron2.vitdet.pieces import group_parameters
from oomproof.sources.detectron2.vitdet.published import find_vitdet, full_name, list_vitdet
from oomproof.sources.detectron2.vitdet.settings import read_shape, read_values
from oomproof.sources.job import TraceRequest
from oomproof.sources.settings import resolve

BATCH = "dataloader.train.total_batch_size"


def job_of(name: str) -> VitdetJob:
    job = open_job(name)
    assert isinstance(job, VitdetJob)
    return job


def test_names() -> None:
    coco, lvis = "COCO/mask_rcnn_vitdet_b_100ep.py", "LVIS/mask_rcnn_vitdet_b_100ep.py"
    for text in (coco, coco[:-3], coco[5:], coco[5:-3], f"projects/ViTDet/configs/{coco}", "configs\\" + coco):
        assert full_name(text) == coco, text
    for text in (lvis, lvis[:-3], f"projects/ViTDet/configs/{lvis}"):
        assert full_name(text) == lvis, text
    assert full_name("mask_rcnn_vitdet_h_100ep") == "LVIS/mask_rcnn_vitdet_h_100ep.py"
    assert full_name("mask_rcnn_vitdet_h_75ep") == "COCO/mask_rcnn_vitdet_h_75ep.py"
    for text in (
        "",
        "mask_rcnn_vitdet_b_100ep.yaml",
        "own/mask_rcnn_vitdet_b_100ep.py",
        "LVIS/mask_rcnn_vitdet_h_75ep",
    ):
        assert full_name(text) == "", text
    assert len(list_vitdet()) == 12
    assert job_of("detectron2:LVIS/mask_rcnn_vitdet_b_100ep").config.dataset == "LVIS"
    with pytest.raises(InputError, match="did you mean"):
        find_vitdet("mask_rcnn_vitdet_h_50ep")


def test_a_name_that_both_folders_have_is_cocos_and_the_report_says_so() -> None:
    job = job_of("cascade_mask_rcnn_vitdet_l_100ep")
    assert job.name == "COCO/cascade_mask_rcnn_vitdet_l_100ep.py"
    assert any("is taken as COCO/cascade" in note for note in job._notes(resolve(job, {})))


def test_settings_follow_each_other() -> None:
    job = job_of("LVIS/mask_rcnn_vitdet_b_100ep")
    plain = resolve(job, {})
    assert (plain["precision"], plain["ddp"], plain["checkpoint"], plain["zero_grad"]) == (
        "fp16", False, "none", "before_backward",
    )  # fmt: skip
    assert (plain.of("batch"), plain.of("image size"), plain["workers"]) == (64, (1024, 1024), 4)
    given = {"train.amp.enabled": "False", "gpus": "8", "model.backbone.net.use_act_checkpoint": "true", "batch": "16"}
    other = resolve(job, given)
    assert (other["precision"], other["ddp"], other[BATCH]) == ("fp32", True, 16)
    assert other["checkpoint"].split(",")[-1] == "backbone.net.blocks.11"
    values = read_values(job.config, resolve(job, {"model.proposal_generator.post_nms_topk": "[500, 1000]"}))
    assert values["MODEL.RPN.POST_NMS_TOPK_TRAIN"] == 500 and values["MODEL.ROI_HEADS.NUM_CLASSES"] == 1203


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"image_size": "800x1333"}, "square"),
        ({"image_size": "1000x1000"}, "multiple of 32"),
        ({"model.proposal_generator.pre_nms_topk": "many"}, "number of proposals"),
        ({"MODEL.MASK_ON": "True"}, "has no setting"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], why: str) -> None:
    job = job_of("mask_rcnn_vitdet_b_100ep")
    with pytest.raises(InputError, match=why):
        read_shape(job.config, resolve(job, given))


def test_pairs_are_for_yaml() -> None:
    with pytest.raises(InputError, match="--set dataloader"):
        open_vitdet("mask_rcnn_vitdet_b_100ep", ("SOLVER.IMS_PER_BATCH", "8"))


LAZY = {
    "one.py": "from detectron2.config import LazyCall as L\nmodel = L(dict)()\n",
    "two.py": "from .mask_rcnn_vitdet_b_100ep import dataloader, model, train\nmodel.backbone.net.depth = 24\n",
    "three.py": "from detectron2 import model_zoo\ntrain = model_zoo.get_config('common/train.py').train\nmodel = 1\n",
}


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_config_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(LAZY[name])
    with pytest.raises(InputError, match=r"is a LazyConfig.*COCO/mask_rcnn_vitdet_b_100ep") as told:
        open_job(str(path))
    assert "\n" not in str(told.value)


def test_a_script_that_trains_with_a_lazy_config_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "lazyconfig_train_net.py"
    path.write_text("from detectron2.config import LazyConfig\ncfg = LazyConfig.load('mine.py')\n")
    with pytest.raises(InputError, match=r"trains with a LazyConfig.*COCO/mask_rcnn_vitdet_b_100ep"):
        open_job(str(path))


def test_a_published_name_on_disk_is_the_users_unless_the_prefix_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "COCO").mkdir()
    (tmp_path / "COCO" / "mask_rcnn_vitdet_l_100ep.py").write_text(LAZY["two.py"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"detectron2:COCO/mask_rcnn_vitdet_l_100ep\.py is that one"):
        open_job("COCO/mask_rcnn_vitdet_l_100ep.py")
    assert job_of("detectron2:COCO/mask_rcnn_vitdet_l_100ep.py").config.shape.depth == 24
    with pytest.raises(InputError, match="no blueprint"):
        open_job("COCO/cascade_mask_rcnn_swin_b_in21k_50ep.py")


def test_parameters_come_in_a_group_for_each_layer() -> None:
    names = ["backbone.net.pos_embed", "backbone.net.blocks.0.norm1.bias", "backbone.net.blocks.1.norm1.bias", "x", "y"]
    groups = group_parameters(names, names, 2)
    assert [group["params"] for group in groups] == [names[:1], names[1:2], names[2:3], names[3:]]


def test_micro_batches_and_smaller_images() -> None:
    job = job_of("mask_rcnn_vitdet_b_100ep")
    settings = resolve(job, {BATCH: 8, "gpus": 2})
    knobs = {knob.name: knob for knob in list_knobs(settings, About(job=job.name))}
    assert [option.value for option in knobs[BATCH].options] == [8, "4 x 2", "2 x 4"]
    assert knobs["image_size"].promise == "different" and knobs["checkpoint"].promise == "identical"
    assert all(size % 32 == 0 for size, _ in (option.settings["image_size"] for option in knobs["image_size"].options))


def test_what_a_plan_writes(tmp_path: Path) -> None:
    job = job_of("mask_rcnn_vitdet_b_100ep")
    settings = resolve(job, {BATCH: 4, "accumulate": 2, "image_size": "512x512", "checkpoint": "backbone.net.blocks.2"})
    told = job.write(settings, tmp_path / "fitted.json")
    assert f"--config-file projects/ViTDet/configs/{job.name} --num-gpus 1 {BATCH}=4" in told
    assert "model.backbone.square_pad=512" in told and "Accumulate(2)" in told
    assert "checkpoint_stages(model, 'backbone.net.blocks.2')" in told


@pytest.mark.thorough
@pytest.mark.slow
def test_crowds_cost_memory_and_recomputing_saves_it() -> None:
    job = job_of("LVIS/mask_rcnn_vitdet_b_100ep")
    small = {BATCH: 1, "image_size": "448x448", "model.roi_heads.batch_size_per_image": 16}

    def peak(**given: Any) -> int:
        return job.trace(TraceRequest(resolve(job, {**small, **given}))).peak().bytes

    assert peak(boxes=3000) > peak(boxes=10)
    assert peak(**{"model.backbone.net.use_act_checkpoint": True}) < peak()
