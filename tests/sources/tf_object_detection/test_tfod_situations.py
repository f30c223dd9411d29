"""Five situations that people come with, each from the config to the cure. What the API would allocate is arithmetic
here (tfod_arithmetic.py); test_tfod_real.py holds its steps against real ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tfod_arithmetic import MIB, arithmetic
from tfod_samples import MASK_RCNN, SSD

import oomproof
from oomproof.cli import main
from oomproof.memory.timeline import Builder, Timeline
from oomproof.sources.tf_object_detection.config.config import read_config
from oomproof.trace.tf_object_detection import process
from oomproof.trace.tf_object_detection.request import StepRequest

sys.path.append(str(Path(__file__).parents[2] / "data" / "annotations"))  # pytest adds what it collects alone
from dataset_files import Box, Picture, write_records

WITH_MASKS = MASK_RCNN.replace(
    "keep_aspect_ratio_resizer { min_dimension: 800 max_dimension: 1365 }",
    "fixed_shape_resizer { height: 512 width: 512 }",
)
OOM = """\
I1117 10:00:00.000000 model_lib_v2.py:705] Step {step} per-step time 0.312s
2026-11-17 10:00:01.000000: W tensorflow/core/framework/op_kernel.cc:1828] OP_REQUIRES failed at conv_ops.cc:684 : \
RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[8,256,256,256] and type float on \
/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with \
shape[8,256,256,256] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
"""


@pytest.fixture(autouse=True)
def _without_the_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "trace_api_step", two_stages)
    monkeypatch.chdir(tmp_path)


def two_stages(request: StepRequest, name: str, progress: Any = None) -> Timeline:
    """The usual arithmetic; of Mask R-CNN, the mask head holds the most, and evaluation its weights and the images."""
    if "faster_rcnn" not in request.text:
        return arithmetic(request, name, progress)
    from oomproof.memory.about import About
    from oomproof.sources.tf_object_detection.config.config import config_of_text

    config = config_of_text(request.text, name)
    regions = request.batch * config.value("model.faster_rcnn.second_stage_batch_size")
    step = Builder()
    step.allocate(200 * MIB, kind="parameter", owner="feature extractor", op="variable")
    for _ in range(2):
        step.enter("forward")
        made = step.allocate(
            400 * request.height * request.width, kind="activation", owner="feature extractor", op="Conv2D"
        )
        heads = step.allocate(
            0 if request.evaluation else regions * 60 * MIB, kind="activation", owner="mask head", op="Conv2D"
        )
        step.enter("backward")
        step.free(heads)
        step.free(made)
    return step.build(about=About(framework="tensorflow", allocator="bfc"))


def written(folder: Path, text: str) -> str:
    (folder / "pipeline.config").write_text(text)
    return str(folder / "pipeline.config")


def records(folder: Path, sizes: tuple[int, int], objects: tuple[int, ...]) -> Path:
    made = [
        Picture(f"{place}.png", *sizes, tuple(Box(1, 1, 4, 4) for _ in range(count)))
        for place, count in enumerate(objects)
    ]
    return write_records(made, folder / "train.record")


def test_mask_rcnn_at_step_1_names_the_stage_and_the_lever(tmp_path: Path) -> None:
    config = written(tmp_path, WITH_MASKS)
    forecast = oomproof.check(config, on="4GiB")
    assert forecast.outcome == "does not fit"
    assert forecast.owners[0][0] == "mask head"
    plan = oomproof.fit(config, on="4GiB", allow=("second_stage_batch_size",), leave=("memory_limit_mb",))
    assert plan.fits
    assert "second_stage_batch_size" in [each.knob for each in plan.changes]
    oomproof.sources.open_job(config).write(plan.settings, tmp_path / "fitted.config")
    fitted = read_config(tmp_path / "fitted.config")
    assert fitted.value("model.faster_rcnn.second_stage_batch_size") < 64
    assert oomproof.check(str(tmp_path / "fitted.config"), on="4GiB").outcome == "fits"


@pytest.mark.thorough
def test_after_n_steps_a_crowded_image_is_told_from_a_leak(tmp_path: Path) -> None:
    text = SSD.replace("batch_size: 24  # of all GPUs", "batch_size: 1")
    config = written(tmp_path, text)
    crowded = records(tmp_path, (64, 48), (1, 2, 1, 2, 1, 3000))
    late = oomproof.explain(OOM.format(step=54000))
    assert late.causes[0].id != "batch_too_big"
    forecast = oomproof.check(config, on="3GiB", data=crowded, max_number_of_boxes=3000)
    assert forecast.epoch is not None
    assert (forecast.epoch.typical.outcome, forecast.epoch.worst.outcome) == ("fits", "does not fit")
    found = oomproof.explain(OOM.format(step=54000), forecast=forecast)
    assert found.causes[0].id == "variable_shape"
    assert "5.png (3000 objects)" in found.causes[0].verdict
    even = records(tmp_path, (64, 48), (2, 2, 2, 2))
    fits = oomproof.check(config, on="8GiB", data=even)
    assert all("5.png" not in cause.verdict for cause in oomproof.explain(OOM.format(step=54000), forecast=fits).causes)


def test_moving_averages_cost_from_the_first_step_on(tmp_path: Path) -> None:
    """They are no reason to fail after N steps; the note says what they are."""
    text = SSD.replace("    use_moving_average: false\n", "")
    notes = oomproof.check(written(tmp_path, text), on="24GiB").notes
    assert any("use_moving_average is not in the file and true by default" in note for note in notes)


def test_ssd_from_300_to_1024(tmp_path: Path) -> None:
    config = written(tmp_path, SSD)
    rows = oomproof.sweep(config, "11GiB", "image_size", ["300x300", "512x512", "1024x1024"], batch=2).rows
    assert [row.allocated.expected for _, row in rows] == sorted(row.allocated.expected for _, row in rows)
    plan = oomproof.fit(config, on="11GiB", batch=2, image_size="1024x1024")
    assert plan.fits
    oomproof.sources.open_job(config).write(plan.settings, tmp_path / "large.config")
    large = read_config(tmp_path / "large.config")
    assert large.value("model.ssd.image_resizer.fixed_shape_resizer.height") == 1024
    base = large.value("model.ssd.anchor_generator.ssd_anchor_generator.base_anchor_height")
    assert base * 1024 == pytest.approx(300, rel=0.01)


@pytest.mark.thorough
def test_what_fits_in_training_dies_in_evaluation(tmp_path: Path) -> None:
    text = WITH_MASKS.replace("second_stage_batch_size: 64", "") + (
        'eval_config { }\neval_input_reader { load_instance_masks: true tf_record_input_reader { input_path: "v" } }\n'
    )
    config = written(tmp_path, text)
    photographs = records(tmp_path, (4000, 3000), (3, 5, 2))
    forecast = oomproof.check(config, on="8GiB", data=photographs, validate=True, second_stage_batch_size=32)
    assert forecast.on_device_outcome == "fits"
    assert forecast.validation_outcome == "does not fit"
    assert forecast.decides == "validation"
    assert forecast.validation is not None
    assert forecast.validation.owners[0][0] == "masks at full size"
    assert any("drawn at 3000x4000" in note for note in forecast.validation.notes)
    assert any("a process of its own" in note and "does not fit" in note for note in forecast.notes)
    small = records(tmp_path, (640, 480), (3, 5, 2))
    cured = oomproof.check(config, on="8GiB", data=small, validate=True, second_stage_batch_size=32)
    assert cured.outcome == "fits"


def test_a_shuffle_buffer_that_fills_the_ram(tmp_path: Path) -> None:
    reader = 'label_map_path: "labels.pbtxt"'
    config = written(tmp_path, SSD.replace(reader, f"{reader}\n  shuffle_buffer_size: 200000", 1))
    before = oomproof.check(config, on="24GiB", ram="16GiB", batch=2)
    assert (before.on_device_outcome, before.host_outcome) == ("fits", "does not fit")
    plan = oomproof.fit(config, on="24GiB", ram="16GiB", batch=2)
    assert plan.fits
    assert plan.settings["shuffle_buffer_size"] < 200000
    found = oomproof.explain(
        "tensorflow/core/kernels/data/shuffle_dataset_op.cc:390] Filling up shuffle buffer (this may take a while): "
        "91234 of 200000\nKilled\n"
    )
    assert found.causes[0].id == "host_shuffle_buffer"


def test_a_sweep_over_resolutions_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(tmp_path, SSD)
    sizes = "image_size=300x300,600x600"
    assert main(["check", config, "--on", "T4", "--batch", "2", "-q", "--sweep", sizes]) == 0
    shown = capsys.readouterr().out
    memory, time = shown.index("share of the budget"), shown.index("time of a step")
    small, large = (line for line in shown[memory:time].splitlines() if line.lstrip().startswith(("300x", "600x")))
    assert large.count("█") + large.count("#") > small.count("█") + small.count("#")
    assert main(["check", config, "--on", "T4", "-q", "--sweep", "batch_size=1,2"]) == 0
    assert "time of a step" not in capsys.readouterr().out, "only where resolutions are compared"
