"""A pipeline.config as a job: settings, what a plan changes in the file, and what is said where the API is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tfod_samples import MASK_RCNN as PLAIN
from tfod_samples import SSD

from oomproof.errors import InputError
from oomproof.frameworks import object_detection
from oomproof.memory.about import About
from oomproof.sources import open_job
from oomproof.sources.job import ReadsData
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.host import WORKING, bytes_of_image, describe_host, price_host
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob, open_config
from oomproof.sources.tf_object_detection.knobs import knobs_of
from oomproof.sources.tf_object_detection.notes import notes_of
from oomproof.sources.tf_object_detection.planned_values import find_planned_values
from oomproof.trace.request import TraceRequest

MASK_RCNN = PLAIN.replace(
    "batch_size: 1",
    """batch_size: 2
  num_steps: 200000
  optimizer {
    momentum_optimizer {
      learning_rate {
        manual_step_learning_rate { initial_learning_rate: 0.003 schedule { step: 900000 learning_rate: 0.0003 } }
      }
    }
    use_moving_average: false
  }""",
)


def job_of(text: str = SSD) -> ObjectDetectionJob:
    return open_config(config_of_text(text, "pipeline.config"), "pipeline.config")


def planned(text: str = SSD, **given: Any) -> dict[str, Any]:
    job = job_of(text)
    return find_planned_values(job.config, resolve(job, given))


def test_fields_are_settings_under_their_own_names() -> None:
    settings = resolve(job_of(), {"batch": 8, "image_size": "320x256", "boxes": 5})
    assert settings["batch_size"] == settings.of("batch") == 8
    assert settings.of("image size") == (320, 256)
    assert settings.of("boxes") == 5
    assert settings["max_number_of_boxes"] == 100
    assert settings.of("optimizer") == "momentum_optimizer"
    assert "first_stage_max_proposals" not in settings
    assert resolve(job_of(MASK_RCNN), {})["first_stage_max_proposals"] == 300
    assert resolve(job_of(MASK_RCNN), {})["mask_height"] == 33


def test_what_a_setting_does_not_change_stays_in_the_text() -> None:
    assert not planned()
    request = job_of().step_request(resolve(job_of(), {}))
    assert request.text == SSD
    assert (request.height, request.width, request.batch, request.tensorflow) == (300, 300, 24, 2)


def test_a_smaller_batch_takes_the_schedule_along() -> None:
    changed = planned(batch=12)
    rate = "train_config.optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate"
    assert changed["train_config.batch_size"] == 12
    assert changed[f"{rate}.learning_rate_base"] == pytest.approx(0.04)
    assert changed[f"{rate}.total_steps"] == 100_000
    assert changed[f"{rate}.warmup_steps"] == 20_000  # 10,000 is the API's default
    assert changed[f"{rate}.warmup_learning_rate"] == pytest.approx(0.0001)


def test_steps_of_a_manual_schedule_and_the_number_of_steps() -> None:
    rate = "train_config.optimizer.momentum_optimizer.learning_rate.manual_step_learning_rate"
    changed = planned(MASK_RCNN, batch=1)
    assert changed["train_config.num_steps"] == 400_000
    assert changed[f"{rate}.schedule[0].step"] == 1_800_000
    assert changed[f"{rate}.schedule[0].learning_rate"] == pytest.approx(0.00015)


def test_the_resizer_gets_the_image_size() -> None:
    assert planned(image_size=(256, 320)) == {
        "model.ssd.image_resizer.fixed_shape_resizer.height": 256,
        "model.ssd.image_resizer.fixed_shape_resizer.width": 320,
    }
    start = "model.faster_rcnn.image_resizer.keep_aspect_ratio_resizer"
    assert planned(MASK_RCNN, image_size="600x1000") == {f"{start}.min_dimension": 600, f"{start}.max_dimension": 1000}
    padded = MASK_RCNN.replace("max_dimension: 1365", "max_dimension: 1365 pad_to_max_dimension: true")
    assert resolve(job_of(padded), {})["image_size"] == (1365, 1365)
    assert planned(padded, image_size=682)[f"{start}.min_dimension"] == 400


ANCHORS = "model.ssd.anchor_generator.ssd_anchor_generator"
UNREDUCED = SSD.replace("min_scale: 0.2", "min_scale: 0.2 reduce_boxes_in_lowest_layer: false")


def test_anchors_of_a_larger_input_keep_the_smallest_in_pixels() -> None:
    """Anchors of SSD are parts of the image: 0.2 of 300 pixels are 60, and 60 of 1200 are 0.05."""
    changed = planned(UNREDUCED, image_size=1200)
    assert changed[f"{ANCHORS}.min_scale"] == pytest.approx(0.05)
    assert f"{ANCHORS}.max_scale" not in changed
    assert f"{ANCHORS}.min_scale" not in planned(UNREDUCED, image_size=256)
    listed = UNREDUCED.replace("min_scale: 0.2", "scales: [0.2, 0.4, 0.8]")
    assert planned(listed, image_size=600)[f"{ANCHORS}.scales"] == pytest.approx((0.1, 0.2828, 0.8), rel=1e-3)
    nothing = UNREDUCED.replace("min_scale: 0.2", "scales: [0, 0.4]")
    assert planned(nothing, image_size=600)[f"{ANCHORS}.scales"] == pytest.approx((0, 0.2))
    job = job_of(UNREDUCED)
    told = notes_of(job.config, resolve(job, {"image_size": 1200}))
    assert any("smallest keeps its 60 pixels (60)" in note for note in told)


def test_the_anchor_of_a_reduced_lowest_layer_stays_in_pixels() -> None:
    """It is a tenth of the base anchor, whatever the scales are: 30 of 300 pixels, and 30 of 1200 by a smaller base."""
    changed = planned(image_size=1200)
    assert changed[f"{ANCHORS}.base_anchor_height"] == changed[f"{ANCHORS}.base_anchor_width"] == pytest.approx(0.25)
    assert f"{ANCHORS}.min_scale" not in changed
    assert changed[f"{ANCHORS}.max_scale"] * 0.25 == pytest.approx(0.95)
    listed = planned(SSD.replace("min_scale: 0.2", "scales: [0.2, 0.4, 0.8]"), image_size=600)
    assert listed[f"{ANCHORS}.scales"] == pytest.approx((0.2, 0.5657, 1.6), rel=1e-3)
    job = job_of()
    told = notes_of(job.config, resolve(job, {"image_size": 1200}))
    assert any("smallest keeps its 30 pixels (30)" in note for note in told)


def test_another_optimizer_keeps_the_schedule() -> None:
    job = job_of()
    values = find_planned_values(job.config, resolve(job, {"optimizer": "adam_optimizer", "batch": 12}))
    changed = job.config.with_values(values)
    assert changed.which("train_config.optimizer") == "adam_optimizer"
    rate = "train_config.optimizer.adam_optimizer.learning_rate.cosine_decay_learning_rate"
    assert changed.value(f"{rate}.learning_rate_base") == pytest.approx(0.04)


def test_several_gpus_share_the_batch() -> None:
    job = job_of()
    assert job.step_request(resolve(job, {"gpus": 4})).batch == 6
    with pytest.raises(InputError, match="divisible by the number of GPUs, 5; take 20 or 25"):
        job.step_request(resolve(job, {"gpus": 5}))


def test_more_objects_than_there_is_room_for_are_refused() -> None:
    job = job_of()
    with pytest.raises(InputError, match=r"boxes=200 .*max_number_of_boxes=100"):
        job.step_request(resolve(job, {"boxes": 200}))


def test_the_number_of_objects_that_was_assumed_is_said() -> None:
    job = job_of()
    assert "50 objects in each, and 100 (max_number_of_boxes) at worst" in notes_of(job.config, resolve(job, {}))[0]
    assert "7 objects in each" in notes_of(job.config, resolve(job, {"boxes": 7}))[0]
    padded = resolve(job, {"unpad_groundtruth_tensors": False})
    assert "padded to 100 objects" in notes_of(job.config, padded)[0]


def test_a_resizer_without_a_size_asks_for_one() -> None:
    text = SSD.replace(
        "fixed_shape_resizer {\n        height: 300\n        width: 300\n      }", "identity_resizer { }"
    )
    job = job_of(text)
    with pytest.raises(InputError, match="sizes of their own"):
        job.step_request(resolve(job, {}))
    given = resolve(job, {"image_size": "480x640"})
    assert job.step_request(given).height == 480
    assert job.step_request(given).text == text


@pytest.mark.parametrize("side", ["0", "-300"])
def test_a_resizer_without_a_pixel_is_refused(side: str) -> None:
    job = open_config(config_of_text(SSD.replace("height: 300", f"height: {side}"), "ssd.config"), "ssd.config")
    with pytest.raises(InputError, match=rf"ssd.config:7:\d+: .*height: expected 1 pixel or more, got {side}$"):
        resolve(job, {})


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_config_in_another_encoding_is_one_and_the_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "pipeline.config"
    file.write_bytes(f"# gr\u00f6\u00dfe\n{SSD}".encode(encoding))
    with pytest.raises(InputError, match=r"pipeline.config is not a text in UTF-8 \(byte \d\)"):
        open_job(str(file))
    file.write_bytes(b"\xff\xfe\0 nothing")
    with pytest.raises(InputError, match="is not a job"):
        open_job(str(file))


def test_without_the_api_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_detection, "missing_packages", lambda: ("tf-slim",))
    job = job_of()
    with pytest.raises(InputError, match=r"tf-slim is not installed here\): pip install --no-deps tf-keras=="):
        job.trace(TraceRequest(resolve(job, {})))


def test_dead_fields_are_told_by_their_reason() -> None:
    job = job_of(MASK_RCNN)
    told = [note for note in notes_of(job.config, resolve(job, {})) if note.startswith("does nothing")]
    assert any("batch_queue_capacity (line" in note for note in told)


# -- host RAM


def test_the_input_pipeline_is_priced_field_by_field() -> None:
    job = job_of(MASK_RCNN)
    settings = resolve(job, {"image_size": "1024x1024", "batch": 1})
    parts = price_host(job.config, settings).expected
    assert parts["num_readers"] == 64 * 8_000_000
    assert bytes_of_image(job.config, settings) == pytest.approx(412 << 20, rel=0.001)  # masks of 100 padded objects
    decoded = 480 * 640 * (3 + 4 * 7)  # as large as it is stored, with seven masks as in COCO
    assert parts["num_parallel_batches"] == int(WORKING * 8 * (bytes_of_image(job.config, settings) + decoded))
    fewer = resolve(job, {"image_size": "1024x1024", "batch": 1, "num_parallel_batches": 4})
    half = price_host(job.config, fewer).expected
    assert half["num_parallel_batches"] == pytest.approx(parts["num_parallel_batches"] / 2, abs=1)
    read = job.price_data(settings)
    assert read(settings)["pipeline"] == sum(parts.values())
    assert isinstance(job, ReadsData)


def test_readers_are_no_more_than_files(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"train-0000{number}-of-00003.record").touch()
    text = SSD.replace("train-?????-of-00100.record", f"{tmp_path.as_posix()}/train-?????-of-00003.record")
    job = job_of(text)
    assert price_host(job.config, resolve(job, {})).expected["num_readers"] == 3 * 8_000_000
    assert "160 kB as in COCO were assumed" in describe_host(job.config, resolve(job, {}))["notes"][0]


# -- knobs


def knobs(text: str = SSD, **given: Any) -> dict[str, Any]:
    job = job_of(text)
    return {knob.name: knob for knob in knobs_of(job.config, resolve(job, given), About(batchnorms=3))}


def test_what_makes_another_training_says_so() -> None:
    found = knobs(MASK_RCNN)
    different = {name for name, knob in found.items() if knob.promise == "different"}
    assert {"image_size", "first_stage_max_proposals", "second_stage_batch_size"} <= different
    assert {"max_number_of_boxes", "mask_height"} <= different
    assert all(option.harm > 0 for name in different for option in found[name].options[1:])
    whole, one = found["batch_size"].options
    assert (whole.value, one.value, one.promise) == (2, 1, "different")
    assert one.settings == {"batch_size": 1}, "the API cannot accumulate: no micro-batches"
    assert "`oomproof run` has" not in found["batch_size"].why, "it takes no slim models"
    assert "the API has no gradient accumulation (`oomproof run` has)" in knobs(SSD)["batch_size"].why
    assert "BatchNorm" in one.note
    assert "num_steps 400000" in one.note


def test_masks_that_nothing_reads_are_free_to_go() -> None:
    loads = SSD.replace('label_map_path: "labels.pbtxt"', 'label_map_path: "labels.pbtxt" load_instance_masks: true')
    assert knobs(loads)["load_instance_masks"].promise == "identical"
    assert "load_instance_masks" not in knobs(MASK_RCNN)
    assert "load_instance_masks" not in knobs(SSD)
    job = job_of(loads)
    assert any("does not read" in note for note in notes_of(job.config, resolve(job, {})))


def test_knobs_only_where_there_is_something_to_turn() -> None:
    found = knobs(SSD)
    assert "use_moving_average" not in found  # false in this file
    assert "unpad_groundtruth_tensors" not in found  # true by default
    assert "optimizer" not in found  # momentum has one number for a weight: the least
    assert "use_moving_average" in knobs(SSD.replace("    use_moving_average: false\n", ""))
    adam = SSD.replace("momentum_optimizer {", "adam_optimizer {")
    assert knobs(adam)["optimizer"].options[-1].value == "momentum_optimizer"
    assert [option.value for option in knobs(SSD)["batch_size"].options] == [24, 16, 12, 8, 6, 4, 3, 2, 1]
    assert [option.value for option in knobs(SSD, gpus=4)["batch_size"].options] == [24, 16, 12, 8, 4]
    assert all(knobs(SSD)[name].host for name in ("shuffle_buffer_size", "num_readers", "num_prefetch_batches"))


# -- writing


def test_a_plan_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.config"
    path.write_text(SSD)
    job = open_job(str(path))
    told = job.write(resolve(job, {"batch": 12, "max_number_of_boxes": 50}), None)
    assert "train_config.batch_size: 24 -> 12" in told
    assert "train_input_reader.max_number_of_boxes: 100 by default -> 50" in told
    assert "batch_size: 12  # of all GPUs" in path.read_text(), "comments stay"
    assert path.with_name("pipeline.config.orig").read_text() == SSD
    again = open_job(str(path))
    assert resolve(again, {})["batch_size"] == 12
    assert not find_planned_values(again.config, resolve(again, {}))  # type: ignore[attr-defined]


def test_a_file_that_has_changed_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.config"
    path.write_text(SSD)
    job = open_job(str(path))
    path.write_text(SSD + "# mine\n")
    with pytest.raises(InputError, match="has changed since"):
        job.write(resolve(job, {"batch": 12}), None)
    assert path.read_text().endswith("# mine\n")
