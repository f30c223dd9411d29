"""``oomproof check`` and ``fit`` on Detectron2 configs, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomproof.sources.detectron2.config.config import read

Run = Callable[..., Any]
CONFIG = "faster_rcnn_R_50_FPN_1x.yaml"
SMALL = ("INPUT.MIN_SIZE_TRAIN", "(128,)", "INPUT.MAX_SIZE_TRAIN", "192")


@pytest.mark.slow
def test_check_with_overrides(run: Run) -> None:
    options = ("--on", "RTX 3060", "--set", "boxes=8", "--set", "real=false", "--gpus", "2", "--json", "-q")
    code, out, err = run("check", CONFIG, *options, "SOLVER.IMS_PER_BATCH", "4", *SMALL, "--set", "MODEL.FPN.NORM=GN")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["settings"]["SOLVER.IMS_PER_BATCH"] == 4 and found["settings"]["image_size"] == [128, 192]
    assert found["settings"]["ddp"] is True
    assert any(owner.startswith("backbone.fpn_output2.norm") or "backbone" in owner for owner, _ in found["owners"])
    assert any("blueprint" in note for note in found["notes"])


@pytest.mark.slow
def test_fit_writes_a_config(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "mine.yaml", tmp_path / "fitted.yaml"
    source.write_text(f"_BASE_: {CONFIG}\nSOLVER:\n  IMS_PER_BATCH: 8  # all of it\nINPUT:\n  MIN_SIZE_TRAIN: (256,)\n")
    options = (
        "--on",
        "1.6GiB",
        "--gpus",
        "1",
        "--set",
        "boxes=8",
        "--set",
        "real=false",
        "--leave",
        "checkpoint",
        "-q",
    )
    code, out, err = run("fit", str(source), *options, "--write", str(target), "INPUT.MAX_SIZE_TRAIN", "384")
    assert (code, err) == (0, "")
    lines = target.read_text().splitlines()
    assert lines[0] == f"_BASE_: {CONFIG}" and lines[2].endswith("  # all of it")
    values = read(target).values
    assert values["INPUT.MAX_SIZE_TRAIN"] == 384
    assert "wrote" in out and "INPUT.MAX_SIZE_TRAIN 1333 -> 384" in out
    assert source.read_text().count("IMS_PER_BATCH: 8") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((CONFIG, "SOLVER.IMS_PER_BATCH"), "pairs"),
        ((CONFIG, "SOLVER.IMS_PER_BACH", "8"), "did you mean SOLVER.IMS_PER_BATCH?"),
        ((CONFIG, "--set", "SOLVER.ACCUMULATION_STEPS=4"), "It has no gradient accumulation"),
        ((CONFIG, "--gpus", "3"), "must be divisible by the number of GPUs, 3"),
        ((CONFIG, "--gpus", "two"), "gpus must be a number"),
        ((CONFIG, "MODEL.META_ARCHITECTURE", "FCOS"), "supported are GeneralizedRCNN"),
        ((CONFIG, "--batch", "0"), "SOLVER.IMS_PER_BATCH must be at least 1"),
        (("faster_rcnn_R_50_FPN_2x.yaml",), "did you mean faster_rcnn_R_50_FPN"),
        (("torchvision:resnet18", "SOLVER.IMS_PER_BATCH", "8"), "--set NAME=VALUE"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    for command in ("check", "fit"):
        code, out, err = run(command, *arguments, "--on", "8GiB", "-q")
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert said in err and "internal error" not in err


def test_settings_are_listed_by_key(run: Run) -> None:
    code, out, _ = run("check", CONFIG, "--settings", "--json")
    names = [each["name"] for each in json.loads(out)]
    assert code == 0
    assert "SOLVER.IMS_PER_BATCH" in names and "gpus" in names and "MODEL.RETINANET.NUM_CLASSES" not in names
    assert "width" not in names  # nothing of Detectron2 can be cut so
