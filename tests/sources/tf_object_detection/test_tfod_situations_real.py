"""The five situations of test_tfod_situations.py with the API itself, on small models, from the config to the cure.

They need the API, which `make tf-object-detection` installs. Budgets follow from what a first check finds, so that the
tests hold no figure of any model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import oomproof
from oomproof.frameworks.object_detection import INSTALL, missing_packages
from oomproof.memory.forecast import Forecast
from oomproof.sources.tf_object_detection.config.config import read_config

sys.path.append(str(Path(__file__).parents[2] / "data" / "annotations"))  # pytest adds what it collects alone
sys.path.append(str(Path(__file__).parents[2] / "trace"))
from dataset_files import Box, Picture, write_records
from test_tfod_situations import OOM
from tfod_models import CONFIGS, rcnn, ssd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(missing_packages()),
        reason=f"the Object Detection API is not installed (make tf-object-detection: {INSTALL})",
    ),
]
MIB = 1 << 20
EVALUATION = """
eval_config { }
eval_input_reader { max_number_of_boxes: 30 load_instance_masks: true tf_record_input_reader { input_path: "v" } }
"""


def written(folder: Path, text: str) -> str:
    path = folder / "pipeline.config"
    path.write_text(text)
    return str(path)


def records(folder: Path, sizes: tuple[int, int], objects: tuple[int, ...]) -> Path:
    made = [
        Picture(f"{place}.png", *sizes, tuple(Box(1, 1, 4, 4) for _ in range(count)))
        for place, count in enumerate(objects)
    ]
    return write_records(made, folder / "train.record")


def below(forecast: Forecast, part: float = 0.9) -> str:
    """A card that is too small for it."""
    return f"{int(part * forecast.on_device.low / MIB)}MiB"


def test_mask_rcnn_at_step_1_names_the_stage_and_the_lever(tmp_path: Path) -> None:
    text = rcnn("faster_rcnn_resnet50_keras", side=192, masks=True)
    config = written(tmp_path, text.replace("second_stage_batch_size: 32", "second_stage_batch_size: 100"))
    card = below(oomproof.check(config, on="24GiB"), 0.95)
    forecast = oomproof.check(config, on=card)
    assert forecast.outcome == "does not fit"
    heads = [owner for owner, _ in forecast.owners[:3]]
    assert any(owner.startswith(("box head", "mask head")) for owner in heads), heads
    plan = oomproof.fit(config, on=f"{2 * int(card[:-3])}MiB", allow=("second_stage_batch_size",))
    assert plan.fits
    assert "second_stage_batch_size" in [each.knob for each in plan.changes]
    oomproof.sources.open_job(config).write(plan.settings, tmp_path / "fitted.config")
    assert read_config(tmp_path / "fitted.config").value("model.faster_rcnn.second_stage_batch_size") < 100


def test_after_n_steps_a_crowded_image_is_told_from_a_leak(tmp_path: Path) -> None:
    # 51,150 anchors, each of which is held against every object of its image. With few anchors a crowd is too little to
    # tell from what no forecast knows to the MiB.
    text = CONFIGS["ssd_resnet_fpn_tf2"].replace("height: 192 width: 192", "height: 640 width: 640")
    config = written(tmp_path, text.replace("max_number_of_boxes: 30", "max_number_of_boxes: 5000"))
    crowded = records(tmp_path, (64, 48), (1, 2, 1, 2, 1, 5000))
    free = oomproof.check(config, on="24GiB", data=crowded)
    assert free.epoch is not None
    typical, worst = free.epoch.typical.on_device, free.epoch.worst.on_device
    assert worst.low > typical.high, f"else no card tells the two apart: {worst}, {typical}"
    card = f"{int((worst.low + typical.high) / 2 / MIB)}MiB"
    forecast = oomproof.check(config, on=card, data=crowded)
    assert forecast.epoch is not None
    assert (forecast.epoch.typical.outcome, forecast.epoch.worst.outcome) == ("fits", "does not fit")
    found = oomproof.explain(OOM.format(step=54000), forecast=forecast)
    assert found.causes[0].id == "variable_shape"
    assert "5.png (5000 objects)" in found.causes[0].verdict


def test_ssd_inception_from_300_to_1024(tmp_path: Path) -> None:
    config = written(tmp_path, ssd("ssd_inception_v2", side=300))
    rows = oomproof.sweep(config, "24GiB", "image_size", ["300x300", "1024x1024"]).rows
    small, large = (row.allocated.expected for _, row in rows)
    assert large > 4 * small, "activations grow with the area: 11.7 times"
    plan = oomproof.fit(config, on="24GiB", image_size="1024x1024")
    assert plan.fits
    oomproof.sources.open_job(config).write(plan.settings, tmp_path / "large.config")
    written_config = read_config(tmp_path / "large.config")
    assert written_config.value("model.ssd.image_resizer.fixed_shape_resizer.height") == 1024
    base = written_config.value("model.ssd.anchor_generator.ssd_anchor_generator.base_anchor_height")
    assert base * 1024 == pytest.approx(300, rel=0.01)


def test_what_fits_in_training_dies_in_evaluation(tmp_path: Path) -> None:
    config = written(tmp_path, CONFIGS["mask_rcnn_tf2"] + EVALUATION)
    photographs = records(tmp_path, (4000, 3000), (3, 5, 2))
    free = oomproof.check(config, on="40GiB", data=photographs, validate=True)
    assert free.validation is not None
    assert free.validation.on_device.low > free.on_device.high
    card = f"{int((free.validation.on_device.low + free.on_device.high) / 2 / MIB)}MiB"
    forecast = oomproof.check(config, on=card, data=photographs, validate=True)
    assert (forecast.on_device_outcome, forecast.validation_outcome) == ("fits", "does not fit")
    assert forecast.decides == "validation"
    assert forecast.validation is not None
    assert forecast.validation.owners[0][0] == "masks at full size"
    small = records(tmp_path, (640, 480), (3, 5, 2))
    assert oomproof.check(config, on=card, data=small, validate=True).outcome == "fits"


def test_a_shuffle_buffer_that_fills_the_ram(tmp_path: Path) -> None:
    text = CONFIGS["ssd_mobilenet_tf2"].replace("max_number_of_boxes: 30", "shuffle_buffer_size: 200000", 1)
    config = written(tmp_path, text)
    before = oomproof.check(config, on="24GiB", ram="16GiB")
    assert (before.on_device_outcome, before.host_outcome) == ("fits", "does not fit")
    plan = oomproof.fit(config, on="24GiB", ram="16GiB")
    assert plan.fits
    assert plan.settings["shuffle_buffer_size"] < 200000
