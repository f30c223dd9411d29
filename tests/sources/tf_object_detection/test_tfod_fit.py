"""From a pipeline.config to the one that fits. The child's place is taken by arithmetic, so that plans can be made
where the Object Detection API is not installed; test_tfod_real.py holds the child itself against real steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod_arithmetic import MIB, arithmetic
from tfod_samples import SSD

import oomproof
from oomproof.trace.tf_object_detection import process


@pytest.fixture(autouse=True)
def _without_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "trace_api_step", arithmetic)


def written(tmp_path: Path, text: str = SSD) -> Path:
    path = tmp_path / "pipeline.config"
    path.write_text(text)
    return path


def test_a_smaller_batch_only_where_it_is_allowed(tmp_path: Path) -> None:
    path = written(tmp_path)
    plan = oomproof.fit(str(path), on="3GiB")
    assert not plan.fits
    assert any("batch_size" in need for need in plan.needs)
    plan = oomproof.fit(str(path), on="3GiB", allow=("batch_size",))
    assert plan.fits
    [change] = [each for each in plan.changes if each.knob == "batch_size"]
    assert change.promise == "different"
    assert plan.settings["batch_size"] < 24


def test_masks_that_nothing_reads_go_first(tmp_path: Path) -> None:
    text = SSD.replace('label_map_path: "labels.pbtxt"', 'label_map_path: "labels.pbtxt"\n  load_instance_masks: true')
    plan = oomproof.fit(str(written(tmp_path, text)), on="6GiB", keep="identical", leave=("memory_limit_mb",))
    assert plan.fits
    assert [each.knob for each in plan.changes] == ["load_instance_masks"]
    assert plan.settings["batch_size"] == 24


def test_a_check_names_the_batch_that_would_fit(tmp_path: Path) -> None:
    forecast = oomproof.check(str(written(tmp_path)), on="3GiB")
    assert forecast.on_device_outcome != "fits"
    assert "batch_size" in [hint.knob for hint in forecast.hints]


def test_a_sweep_over_resolutions(tmp_path: Path) -> None:
    rows = oomproof.sweep(str(written(tmp_path)), "T4", "image_size", ["300x300", "600x600"], batch=2).rows
    small, large = (row.allocated.expected for _, row in rows)
    assert large - 20 * MIB == pytest.approx(4 * (small - 20 * MIB), rel=0.05)
    assert all(row.step_seconds is not None for _, row in rows)
