"""`oomproof check pipeline.config` where the Object Detection API is not installed: one line, with what installs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomproof.cli import main
from oomproof.frameworks import object_detection

CONFIG = """
model { ssd { num_classes: 3 image_resizer { fixed_shape_resizer { height: 300 width: 300 } }
  feature_extractor { type: "ssd_mobilenet_v2_keras" } } }
train_config { batch_size: 24 }
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(object_detection, "missing_packages", lambda: ("tf-keras", "tf-slim"))
    path = tmp_path / "pipeline.config"
    path.write_text(CONFIG)
    return str(path)


def test_one_line_says_what_to_install(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", config, "--on", "8GiB", "-q"]) == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "tf-keras, tf-slim are not installed here" in line
    assert object_detection.INSTALL in line


def test_settings_are_checked_before_anything_is_loaded(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", config, "--on", "8GiB", "-q", "--set", "max_number_of_box=3"]) == 1
    assert "did you mean max_number_of_boxes?" in capsys.readouterr().err
    assert main(["check", config, "--on", "8GiB", "-q", "--set", "boxes=101"]) == 1
    assert "more than max_number_of_boxes=100" in capsys.readouterr().err
