"""What a config may become where it cannot be made to fit as it is: a pyramid, frozen parts, a lighter model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod_arithmetic import arithmetic
from tfod_samples import MASK_RCNN, SSD

import oomproof
from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection import fields
from oomproof.sources.tf_object_detection.config.config import Config, config_of_text
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob, open_config
from oomproof.sources.tf_object_detection.knobs import knobs_of
from oomproof.sources.tf_object_detection.lighter import BOXES, MASKS, describe_lighter, find_lighter
from oomproof.sources.tf_object_detection.notes import notes_of
from oomproof.sources.tf_object_detection.planned_values import find_planned_values
from oomproof.trace.request import TraceRequest
from oomproof.trace.tf_object_detection import process

PLAIN = SSD.replace(
    "    anchor_generator {",
    """    box_predictor {
      convolutional_box_predictor {
        conv_hyperparams { regularizer { l2_regularizer { weight: 0.0001 } } }
      }
    }
    anchor_generator {""",
    1,
)
TF1 = PLAIN.replace("ssd_mobilenet_v2_keras", "ssd_inception_v2")


@pytest.fixture(autouse=True)
def _without_the_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "trace_api_step", arithmetic)
    monkeypatch.chdir(tmp_path)


def job_of(text: str) -> ObjectDetectionJob:
    return open_config(config_of_text(text, "pipeline.config"), "pipeline.config")


def changed(text: str, **given: object) -> Config:
    job = job_of(text)
    return job.config.with_values(find_planned_values(job.config, resolve(job, given)))


def test_a_pyramid_brings_its_anchors_and_head_along() -> None:
    made = changed(PLAIN, feature_extractor="ssd_resnet50_v1_fpn_keras", image_size="1024x1024")
    ssd = "model.ssd"
    assert made.value(f"{ssd}.feature_extractor.type") == "ssd_resnet50_v1_fpn_keras"
    assert made.which(f"{ssd}.anchor_generator") == "multiscale_anchor_generator"
    anchors = f"{ssd}.anchor_generator.multiscale_anchor_generator"
    levels = [made.value(f"{anchors}.{side}_level") for side in ("min", "max")]
    assert levels == [made.value(f"{ssd}.feature_extractor.fpn.{side}_level") for side in ("min", "max")] == [3, 7]
    assert made.which(f"{ssd}.box_predictor") == "weight_shared_convolutional_box_predictor"
    head = f"{ssd}.box_predictor.weight_shared_convolutional_box_predictor"
    assert made.value(f"{head}.depth") == made.value(f"{ssd}.feature_extractor.fpn.additional_layer_depth") == 256
    assert made.value(f"{head}.conv_hyperparams.regularizer.l2_regularizer.weight") == pytest.approx(0.0001)
    assert made.value(f"{ssd}.image_resizer.fixed_shape_resizer.height") == 1024
    assert "ssd_anchor_generator" not in made.text, "min_scale is not rescaled, since it is gone"
    assert config_of_text(made.text, "again").value(f"{ssd}.num_classes") == 3
    job = job_of(PLAIN)
    settings = resolve(job, {"feature_extractor": "ssd_resnet50_v1_fpn_keras", "image_size": "1024x1024"})
    assert not [note for note in notes_of(job.config, settings) if "anchors are rescaled" in note]


def test_pyramids_are_of_the_same_tensorflow() -> None:
    for text, ending in ((PLAIN, "_keras"), (TF1, "_fpn")):
        [setting] = [each for each in job_of(text).settings if each.name == "feature_extractor"]
        assert all(name.endswith(ending) for name in setting.choices[1:])
    assert job_of(TF1).step_request(resolve(job_of(TF1), {"feature_extractor": "ssd_mobilenet_v2_fpn"})).tensorflow == 1
    assert all(each.name != "feature_extractor" for each in job_of(MASK_RCNN).settings)


def test_freezing_is_for_tensorflow_1_alone() -> None:
    made = changed(TF1, freeze_variables="FeatureExtractor, BoxPredictor_0")
    assert made.value("train_config.freeze_variables") == ("FeatureExtractor", "BoxPredictor_0")
    with pytest.raises(InputError, match="freeze_variables"):
        resolve(job_of(PLAIN), {"freeze_variables": "FeatureExtractor"})


def test_knobs_of_heads_norms_and_extractors() -> None:
    def knobs(text: str, **given: object) -> dict[str, str]:
        job = job_of(text)
        found = knobs_of(job.config, resolve(job, given), About(batchnorms=3))
        return {knob.name: knob.promise for knob in found}

    assert (
        knobs(TF1)["freeze_variables"]
        == knobs(TF1)["feature_extractor"]
        == knobs(TF1)["freeze_batchnorm"]
        == "different"
    )
    assert "freeze_variables" not in knobs(PLAIN)
    assert "retain_original_images" not in knobs(PLAIN)
    assert knobs(PLAIN, retain_original_images=True)["retain_original_images"] == "identical"
    masks = MASK_RCNN.replace(
        "predict_instance_masks: true", "predict_instance_masks: true mask_prediction_conv_depth: 256"
    )
    assert knobs(masks)["mask_prediction_conv_depth"] == "different"


def test_lighter_models_are_quicker_and_told_with_their_map() -> None:
    job = job_of(SSD.replace("ssd_mobilenet_v2_keras", "ssd_resnet50_v1_fpn_keras"))
    found = find_lighter(job.config, 640)
    assert found
    assert all(each.milliseconds < 46 for each in found)
    [line] = describe_lighter(job.config, 640)
    assert "(now 34.3)" in line
    assert 'fine_tune_checkpoint_type: "detection"' in line
    [line] = describe_lighter(job_of(MASK_RCNN).config, 800)
    assert "mask_rcnn_resnet101_atrous_coco_2018_01_28 33" in line
    assert "from_detection_checkpoint: true" in line
    assert not describe_lighter(job_of(SSD).config, 300), "nothing is quicker"
    names = [each.name for each in (*BOXES, *MASKS)]
    assert len(set(names)) == len(names)


def test_a_plan_that_finds_nothing_names_lighter_models(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.config"
    path.write_text(SSD.replace("ssd_mobilenet_v2_keras", "ssd_resnet50_v1_fpn_keras"))
    plan = oomproof.fit(str(path), on="1GiB", batch=1, image_size="1024x1024")
    assert not plan.fits
    assert any("lighter model of the TF2 zoo" in need for need in plan.needs)


def test_what_the_api_lacks_is_named_where_a_batch_could_be_cut() -> None:
    def ways(text: str, **settings: object) -> str:
        job = job_of(text)
        return " ".join(job.describe_other_ways(resolve(job, settings)))

    assert "`oomproof run pipeline.config --model-dir FOLDER" in ways(SSD, batch_size=8)
    assert "oomproof run" not in ways(SSD, batch_size=8, gpus=8), "an image each"
    assert "oomproof run" not in ways(PLAIN.replace("_keras", ""), batch_size=8), "run takes no slim models"


def test_a_matcher_of_contrib_is_refused_in_one_line() -> None:
    text = PLAIN.replace("    anchor_generator {", "    matcher { bipartite_matcher { } }\n    anchor_generator {", 1)
    job = job_of(text)
    with pytest.raises(InputError, match=r"expected argmax_matcher; got bipartite_matcher, .* tf.contrib") as caught:
        job.trace(TraceRequest(resolve(job, {})))
    assert "\n" not in str(caught.value)


def test_quantization_of_tensorflow_1_is_refused_in_one_line() -> None:
    text = PLAIN.replace("_keras", "") + "graph_rewriter { quantization { delay: 100 } }\n"
    job = job_of(text)
    line = len(text.splitlines())
    with pytest.raises(
        InputError, match=rf"{line}:1: graph_rewriter: .* Remove it, .* less than yours takes"
    ) as caught:
        job.trace(TraceRequest(resolve(job, {})))
    assert "\n" not in str(caught.value)


def test_what_needs_a_package_that_is_not_there_is_told_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """model { center_net { num_classes: 2 deepmac_mask_estimation { }
  feature_extractor { type: "resnet_v1_50_fpn" }
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } } } } train_config { batch_size: 2 }"""
    job = job_of(text)
    monkeypatch.setattr(fields, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="without the package tensorflow-io"):
        job.step_request(resolve(job, {}))
    monkeypatch.setattr(fields, "find_spec", lambda name: object())
    assert job.step_request(resolve(job, {"batch_size": 12})).many_images == "repeat"


def test_keypoints_without_their_names_are_told_by_the_field(tmp_path: Path) -> None:
    text = """model { center_net { num_classes: 2 keypoint_label_map_path: "PATH_TO_BE_CONFIGURED"
  feature_extractor { type: "resnet_v1_50_fpn" }
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } } } } train_config { batch_size: 2 }"""
    job = job_of(text)
    with pytest.raises(InputError, match=r":1:\d+: model.center_net.keypoint_label_map_path: .* PATH_TO_BE_CONFIGURED"):
        job.step_request(resolve(job, {}))
    (tmp_path / "map.pbtxt").write_text("")
    there = job_of(text.replace("PATH_TO_BE_CONFIGURED", str(tmp_path / "map.pbtxt")))
    assert there.step_request(resolve(there, {})).many_images == "extend"
    task = 'keypoint_estimation_task { task_name: "pose" keypoint_class_name: "person" } feature_extractor'
    posed = job_of(there.config.text.replace("feature_extractor", task))
    assert posed.step_request(resolve(posed, {})).many_images == "repeat"
