"""`oomproof run pipeline.config` for real: float16, and models beyond SSD MobileNet. It needs the API."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from tfod_records import mask_rcnn_config, other_config, write_config, write_records
from tfod_training import losses_in, needs_api, run

pytestmark = [pytest.mark.slow, pytest.mark.thorough, needs_api]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_records(folder, masks=True)
    return folder


def test_float16_for_several_steps_and_on_from_there(records: Path, tmp_path: Path) -> None:
    config = write_config(records, steps=5, batch=4, dropout="false")
    full, _ = run(config, "--model-dir", tmp_path / "full", "--steps", "1")
    first, _ = run(config, "--model-dir", tmp_path / "half", "--precision", "fp16", "--steps", "3")
    then, _ = run(config, "--model-dir", tmp_path / "half", "--precision", "fp16")
    half = losses_in(first) | losses_in(then)
    assert list(half) == [1, 2, 3, 4, 5]
    assert all(map(math.isfinite, half.values()))
    assert half[1] == pytest.approx(losses_in(full)[1], rel=0.01)
    assert half[1] != losses_in(full)[1], "else it was not float16"
    assert re.search(r"^step 1: gradients overflow in float16; the loss is scaled by \d+ from here on", first, re.M)
    assert "weights stay as they are" not in first + then
    assert "step 4: gradients overflow" not in then, "the scale is in the checkpoint"


def test_mask_rcnn_in_micro_batches_and_on_from_there(records: Path, tmp_path: Path) -> None:
    config = mask_rcnn_config(records, steps=3)
    options = (config, "--accumulate", "2", "--save-every", "1")
    out, _ = run(*options, "--model-dir", tmp_path / "whole")
    losses = losses_in(out)
    assert list(losses) == [1, 2, 3]
    assert all(map(math.isfinite, losses.values()))
    assert "not as with the whole batch: regions and anchors are sampled by chance" in out
    assert "not as with the whole batch: the mask loss is divided by the masks of each micro-batch" in out
    for part in ("RPN localization", "BoxClassifier localization", "BoxClassifier mask"):
        assert part in out
    run(*options, "--model-dir", tmp_path / "cut", "--steps", "2")
    again, _ = run(*options, "--model-dir", tmp_path / "cut")
    assert losses_in(again) == {3: losses[3]}, "samples of regions follow from the seed and the step"


@pytest.mark.lengthy
@pytest.mark.parametrize("name", ["center_net", "efficient_det"])
def test_other_models_train_and_go_on_exactly(name: str, records: Path, tmp_path: Path) -> None:
    """Whole batches, and micro-batches from a checkpoint on."""
    config = other_config(records, name)
    out, _ = run(config, "--model-dir", tmp_path / "whole", "--save-every", "1")
    losses = losses_in(out)
    assert list(losses) == [1, 2, 3]
    assert all(map(math.isfinite, losses.values()))
    run(config, "--model-dir", tmp_path / "cut", "--steps", "2")
    again, _ = run(config, "--model-dir", tmp_path / "cut")
    assert losses_in(again) == {3: losses[3]}
    pieces, _ = run(config, "--model-dir", tmp_path / "cut", "--steps", "4", "--accumulate", "2")
    assert list(losses_in(pieces)) == [4]
    assert "batch normalisation takes its statistics from 2 images" in pieces
