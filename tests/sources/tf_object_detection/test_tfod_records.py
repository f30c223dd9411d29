"""A pipeline.config held against the TFRecords it trains on: its worst batch, and the host RAM of its input."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tfod_arithmetic import MIB, arithmetic
from tfod_samples import MASK_RCNN, SSD

import oomproof
from oomproof.cli import main
from oomproof.data.annotations.read import read_dataset, read_records
from oomproof.errors import InputError
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.host import WORKING, price_host
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob, open_config
from oomproof.trace.tf_object_detection import process

sys.path.append(str(Path(__file__).parents[2] / "data" / "annotations"))  # pytest adds what it collects alone
from dataset_files import Box, Picture, write_records

CROWDS = (3, 40, 12, 25, 7, 2)
UNPADDED = SSD.replace("batch_size: 24  # of all GPUs", "batch_size: 2")
PADDED = UNPADDED.replace("batch_size: 2", "batch_size: 2\n  unpad_groundtruth_tensors: false")


@pytest.fixture(autouse=True)
def _without_the_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "trace_api_step", arithmetic)
    monkeypatch.chdir(tmp_path)


def picture(name: str, width: int, height: int, objects: int, mask: int = 0) -> Picture:
    return Picture(name, width, height, tuple(Box(1, 1, 4, 4, vertices=mask) for _ in range(objects)))


def records(folder: Path, sizes: Sequence[tuple[int, int]] = ((64, 48),), name: str = "train.record") -> Path:
    made = [picture(f"{at}.png", *sizes[at % len(sizes)], objects) for at, objects in enumerate(CROWDS)]
    return write_records(made, folder / name)


def written(folder: Path, text: str = UNPADDED) -> str:
    (folder / "pipeline.config").write_text(text)
    return str(folder / "pipeline.config")


def job_of(text: str) -> ObjectDetectionJob:
    return open_config(config_of_text(text, "pipeline.config"), "pipeline.config")


def test_the_most_crowded_images_decide_where_only_objects_differ(tmp_path: Path) -> None:
    forecast = oomproof.check(written(tmp_path), on="8GiB", data=records(tmp_path))
    epoch = forecast.epoch
    assert epoch is not None
    assert epoch.exact
    assert {(each.name, each.objects) for each in epoch.worst.spec.images} == {("1.png", 40), ("3.png", 25)}
    assert epoch.traces == 2, "the worst batch and a usual one"
    assert epoch.worst.allocated.expected - epoch.typical.allocated.expected == pytest.approx(
        (65 - epoch.typical.spec.objects) * MIB, rel=0.02
    )


def test_all_batches_are_alike_where_everything_is_padded(tmp_path: Path) -> None:
    forecast = oomproof.check(written(tmp_path, PADDED), on="8GiB", data=records(tmp_path))
    epoch = forecast.epoch
    assert epoch is not None
    assert epoch.traces == 1
    assert epoch.worst == epoch.typical
    assert "padded to 100 objects" in epoch.rule


@pytest.mark.thorough
def test_objects_beyond_max_number_of_boxes_are_dropped(tmp_path: Path) -> None:
    forecast = oomproof.check(written(tmp_path), on="8GiB", data=records(tmp_path), max_number_of_boxes=20)
    assert forecast.epoch is not None
    assert forecast.epoch.worst.spec.objects == 40


@pytest.mark.thorough
def test_keep_aspect_ratio_takes_the_worst_shapes(tmp_path: Path) -> None:
    text = MASK_RCNN.replace("batch_size: 2", "batch_size: 1")
    sizes = ((640, 480), (480, 640), (500, 500), (2000, 400))
    epoch = oomproof.check(written(tmp_path, text), on="64GiB", data=records(tmp_path, sizes)).epoch
    assert epoch is not None
    [image] = epoch.worst.spec.images
    assert {image.height, image.width} == {800, 1067}
    assert "shorter side to 800, longer side no more than 1365" in epoch.rule


@pytest.mark.thorough
def test_random_crops_make_any_shape(tmp_path: Path) -> None:
    text = MASK_RCNN.replace(
        "train_config: {", "train_config: {\n  data_augmentation_options { ssd_random_crop { } }", 1
    )
    epoch = oomproof.check(written(tmp_path, text), on="64GiB", data=records(tmp_path)).epoch
    assert epoch is not None
    assert not epoch.exact
    assert epoch.worst.padded == (800, 1365)


@pytest.mark.thorough
def test_images_that_cannot_be_stacked_are_told(tmp_path: Path) -> None:
    text = MASK_RCNN.replace("batch_size: 1", "batch_size: 2")
    forecast = oomproof.check(written(tmp_path, text), on="64GiB", data=records(tmp_path, ((640, 480), (480, 640))))
    assert any("pad_to_max_dimension: true" in note for note in forecast.notes)


@pytest.mark.thorough
def test_a_batch_is_full_although_records_are_few(tmp_path: Path) -> None:
    epoch = oomproof.check(written(tmp_path), on="24GiB", data=records(tmp_path), batch=16).epoch
    assert epoch is not None
    assert len(epoch.worst.spec.images) == 16


def test_an_identity_resizer_takes_sizes_from_the_records(tmp_path: Path) -> None:
    text = MASK_RCNN.replace(
        "keep_aspect_ratio_resizer { min_dimension: 800 max_dimension: 1365 }", "identity_resizer { }"
    )
    with pytest.raises(InputError, match="--records FILES"):
        oomproof.check(written(tmp_path, text), on="64GiB")
    epoch = oomproof.check(written(tmp_path, text), on="64GiB", data=records(tmp_path, ((640, 480), (60, 50)))).epoch
    assert epoch is not None
    assert epoch.worst.padded == (480, 640)


# -- the command line


def as_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.thorough
def test_records_by_name_pattern_and_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(tmp_path)
    for number in range(2):
        records(tmp_path, name=f"train.record-0000{number}-of-00002")
    for given in (["train.record-*"], ["train.record-00000-of-00002", "train.record-00001-of-00002"]):
        options = [each for name in given for each in ("--records", str(tmp_path / name))]
        assert main(["check", config, "--on", "8GiB", "-q", "--json", *options]) == 0
        assert as_json(capsys)["data"]["images"] == 12
    assert main(["check", config, "--on", "8GiB", "-q", "--json", "--data", str(tmp_path / "train.record-*")]) == 0
    assert as_json(capsys)["data"]["images"] == 12


def test_the_files_of_input_path_are_read_by_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(tmp_path)
    records(tmp_path, name="train-00000-of-00100.record")
    assert main(["check", config, "--on", "8GiB", "-q", "--json"]) == 0
    assert as_json(capsys)["data"]["images"] == 6
    assert main(["check", config, "--on", "8GiB", "-q", "--json", "--records", "none"]) == 0
    assert as_json(capsys)["data"] is None
    (tmp_path / "train-00000-of-00100.record").write_bytes(b"\x1f\x8bzip")
    assert main(["check", config, "--on", "8GiB", "-q", "--all"]) == 0
    assert "its data files were not read" in capsys.readouterr().out


def test_records_that_are_not_there_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written(tmp_path), "--on", "8GiB", "-q", "--records", "nothing-*.record"]) == 1
    assert "no TFRecord file is called nothing-*.record" in capsys.readouterr().err
    assert main(["check", written(tmp_path), "--on", "8GiB", "-q", "--records", "a", "--data", "b"]) == 1
    assert "leave out --data" in capsys.readouterr().err


def test_a_plan_looks_at_the_worst_batch(tmp_path: Path) -> None:
    plan = oomproof.fit(written(tmp_path), on="8GiB", data=records(tmp_path))
    assert plan.fits
    assert plan.after.epoch is not None
    assert plan.after.epoch.worst.spec.objects == 65


# -- host RAM


def test_the_shuffle_buffer_holds_records_of_their_own_size(tmp_path: Path) -> None:
    job, data = job_of(SSD), read_dataset(records(tmp_path))
    assert data.record_bytes is not None
    price = price_host(job.config, resolve(job, {"shuffle_buffer_size": 1000}), data)
    assert price.expected["shuffle_buffer_size"] == int(1000 * data.record_bytes.mean())
    assert price.high["shuffle_buffer_size"] >= price.expected["shuffle_buffer_size"]
    assert price.expected["num_readers"] == 8_000_000, "no more readers than files"


def test_masks_are_decoded_at_the_size_they_are_stored(tmp_path: Path) -> None:
    job = job_of(MASK_RCNN)
    plain = write_records([picture("a.png", 100, 80, 5)], tmp_path / "plain.record")
    masked = write_records([picture("a.png", 100, 80, 5, mask=9)], tmp_path / "masked.record")
    settings = resolve(job, {"load_instance_masks": True})
    parts = [price_host(job.config, settings, read_records([each])).expected for each in (plain, masked)]
    more = parts[1]["num_parallel_batches"] - parts[0]["num_parallel_batches"]
    drawn = settings["batch_size"] * settings["num_parallel_batches"] * 5 * 100 * 80 * 4
    assert more == pytest.approx(WORKING * drawn, abs=2)


@pytest.mark.thorough
def test_a_shuffle_buffer_that_fills_the_ram_is_found_and_made_smaller(tmp_path: Path) -> None:
    large = records(tmp_path, ((64, 48),))
    text = UNPADDED.replace(
        'label_map_path: "labels.pbtxt"', 'label_map_path: "labels.pbtxt"\n  shuffle_buffer_size: 60000000', 1
    )
    config = written(tmp_path, text)
    before = oomproof.check(config, on="8GiB", data=large, ram="16GiB")
    assert before.on_device_outcome == "fits"
    assert before.outcome == "does not fit"
    assert any("shuffle_buffer_size" in note for note in before.notes)
    plan = oomproof.fit(config, on="8GiB", data=large, ram="16GiB")
    assert plan.fits
    assert [each.knob for each in plan.changes] == ["shuffle_buffer_size"]
    assert plan.after.epoch is not None, "what was told of the data is not lost"
    assert oomproof.check(config, on="8GiB", data=large, ram="16GiB", **plan.settings).outcome == "fits"
