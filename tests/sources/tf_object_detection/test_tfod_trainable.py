"""What keeps a training from beginning is said in one line, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomproof.cli import main
from oomproof.errors import InputError
from oomproof.frameworks import object_detection
from oomproof.sources.tf_object_detection.config.config import read_config
from oomproof.sources.tf_object_detection.trainable import require_trainable

CONFIG = """
model { ssd { num_classes: 3 image_resizer { fixed_shape_resizer { height: 300 width: 300 } }
  feature_extractor { type: "ssd_mobilenet_v2_keras" } } }
train_config { batch_size: 24 num_steps: 10 fine_tune_checkpoint: "START" }
train_input_reader { label_map_path: "LABELS" tf_record_input_reader { input_path: "RECORDS-?" } }
"""


def written(folder: Path, **changes: str) -> Path:
    for name in ("train.record-0", "labels.pbtxt", "ckpt-0.index"):
        (folder / name).write_bytes(b"")
    text = CONFIG
    for before, after in {
        "START": f"{folder}/ckpt-0", "LABELS": f"{folder}/labels.pbtxt", "RECORDS": f"{folder}/train.record", **changes,
    }.items():  # fmt: skip
        text = text.replace(before, after)
    path = folder / "pipeline.config"
    path.write_text(text)
    return path


def test_a_config_with_all_its_files(tmp_path: Path) -> None:
    require_trainable(read_config(written(tmp_path)), begins=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"RECORDS": "/nowhere/train.record"}, r"no file matches .*input_path /nowhere/train.record-\?"),
        ({"RECORDS": "PATH_TO_BE_CONFIGURED/train"}, "the zoo's configs leave for you to fill in"),
        ({"LABELS": "/nowhere/labels.pbtxt"}, "label_map_path /nowhere/labels.pbtxt"),
        ({"START": "/nowhere/ckpt-0"}, r"fine_tune_checkpoint /nowhere/ckpt-0 is not there"),
        ({"START": "FOLDER"}, "is a folder; expected the path of a checkpoint in it"),
        ({"ssd_mobilenet_v2_keras": "ssd_inception_v2"}, "ssd_inception_v2 is a slim graph of TensorFlow 1"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    given = {name: value.replace("FOLDER", str(tmp_path)) for name, value in changes.items()}
    with pytest.raises(InputError, match=said):
        require_trainable(read_config(written(tmp_path, **given)), begins=True)


def test_a_training_that_goes_on_needs_no_start(tmp_path: Path) -> None:
    require_trainable(read_config(written(tmp_path, START="/nowhere/ckpt-0")), begins=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected --model-dir FOLDER"),
        (["--model-dir", "out", "--precision", "fp8"], "--precision wants fp32 or fp16; got fp8"),
        (["--model-dir", "out", "--resume-with", "--resume"], "--resume-with is for commands"),
        (["--model-dir", "out", "--accumulate", "5"], "cannot be cut into 5 micro-batches"),
        (["--model-dir", "out", "--gpus", "5"], "on each of 5 GPUs"),
    ],
)
def test_options_are_checked_first(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(object_detection, "missing_packages", lambda: ())
    assert main(["run", str(written(tmp_path)), "-q", *arguments]) == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert said in line


def test_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(object_detection, "missing_packages", lambda: ("tf-keras", "tf-slim"))
    assert main(["run", str(written(tmp_path)), "--model-dir", str(tmp_path / "out")]) == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert object_detection.INSTALL in line


def test_a_folder_for_a_model_goes_with_a_config(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--model-dir", "out", "--", "python", "-c", "pass"]) == 1
    assert "--model-dir goes with a pipeline.config; got python -c pass" in capsys.readouterr().err
    assert main(["run", "nowhere/pipeline.config", "--model-dir", "out"]) == 1
    assert "there is no file nowhere/pipeline.config" in capsys.readouterr().err
