"""oomproof measure, on this machine's CPU."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from oomproof.cli import main

JOB = ("torchvision:mobilenet_v3_large", "--batch", "16", "--image-size", "160x160", "--on", "this")


@pytest.mark.slow
def test_forecast_against_reality(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["measure", *JOB]) == 0
    out = capsys.readouterr().out
    assert "the real peak, within its range (on the CPU, with its kernels)" in out
    for part in ("allocated", "parameters", "optimizer", "gradients, activations and the rest"):
        assert part in out


@pytest.mark.slow
def test_a_row_for_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", *JOB, "--row"]) == 0
    (cells,) = csv.reader([capsys.readouterr().out.strip()])
    job, device, settings, expected, real, *gpu = cells
    assert (job, device, gpu) == ("torchvision:mobilenet_v3_large", "cpu", ["", "", ""])
    assert "batch=16 image_size=(160, 160)" in settings
    assert int(expected) == pytest.approx(int(real), rel=0.01)


def test_other_machines_cannot_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "torchvision:resnet18", "--on", "RTX 3060"]) == 1
    assert "only this machine can run the job" in capsys.readouterr().err


OWN = """
import torch
from oomproof import TorchJob

def job(batch=4, precision="mine"):  # a name that settings of every training have: it is the function's own
    return TorchJob(
        model=lambda: torch.nn.Linear(64, 8),
        batch=lambda: torch.rand(batch, 64),
        loss=lambda model, images: model(images).square().mean(),
    )

def network():
    import keras
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    return model
"""


def test_a_job_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert main(["measure", f"{tmp_path / 'own.py'}:job", "--batch", "16", "--row"]) == 0
    (cells,) = csv.reader([capsys.readouterr().out.strip()])
    assert "batch=16" in cells[2] and int(cells[3]) == pytest.approx(int(cells[4]), rel=0.01)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_config_of_detectron2(capsys: pytest.CaptureFixture[str]) -> None:
    """Its blueprint, small enough for any machine."""
    job = "COCO-Detection/faster_rcnn_R_50_FPN_1x.yaml"
    assert main(["measure", job, "--row", "--batch", "1", "--image-size", "160x160"]) == 0
    (cells,) = csv.reader([capsys.readouterr().out.strip()])
    assert int(cells[3]) == pytest.approx(int(cells[4]), rel=0.05)


def test_other_kinds_of_jobs_say_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--", "python", "train.py"]) == 1
    assert "a command cannot be measured" in capsys.readouterr().err
    (tmp_path / "own.py").write_text(OWN)
    assert main(["measure", f"{tmp_path / 'own.py'}:network"]) == 1
    said = capsys.readouterr().err
    assert "cannot be measured: its step runs in TensorFlow or Keras. PyTorch jobs can" in said


def test_a_step_without_room_is_not_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 20, total=1 << 40))
    assert main(["measure", "torchvision:mobilenet_v3_small", "--batch", "2", "--image-size", "64x64"]) == 1
    assert "GiB are free here: measure with a smaller --batch" in capsys.readouterr().err
