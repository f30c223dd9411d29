"""oomproof measure, on this machine's CPU."""

from __future__ import annotations

import csv

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
