"""The grid behind the sliders: what is offered, and that each cell is what a check says."""

from __future__ import annotations

import doctest
import random
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import oomproof
from oomproof.api import grid_axes, what_if
from oomproof.api.grid_axes import list_places, propose_axes
from oomproof.cli import main
from oomproof.memory.grid import Axis
from oomproof.sources import open_job
from oomproof.sources.settings import resolve

if TYPE_CHECKING:
    from conftest import Look

GIB = 1 << 30
DETECTOR = "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn"
SCRIPT = Path(__file__).parents[2] / "examples" / "train_script.py"


def test_what_is_written_beside_the_code_holds() -> None:
    for module in (grid_axes, what_if):
        failed, tried = doctest.testmod(module)
        assert tried and not failed


def test_axes_that_are_alone_are_moved_one_at_a_time() -> None:
    axes = (Axis("a", (1, 2), 1), Axis("b", (1, 2, 3), 0, alone=True), Axis("c", (1, 2), 1, alone=True))
    found = list(list_places(axes))
    assert found == [place for place in product((0, 1), (0, 1, 2), (0, 1)) if place[1] == 0 or place[2] == 1]
    assert len(found) == 2 * (1 + 2 + 1)


def test_what_a_job_cannot_do_is_not_offered() -> None:
    job = open_job("torchvision:resnet18")
    start = resolve(job, {"checkpoint": "layer1"})

    def run(other: Mapping[str, Any]) -> str | None:
        return None if other.get("checkpoint") == "nonreentrant" else "AdamW"

    axes = {axis.name: axis for axis in propose_axes(job, start, run)}
    assert axes["optimizer"].values == ("own", "sgd"), "its own is AdamW"
    assert axes["checkpoint"].values == ("layer1", "none")
    assert {name for name, axis in axes.items() if axis.alone} == {"image_size", "optimizer", "checkpoint"}
    assert "boxes" not in axes, "a classifier has none"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_detectors_cells_are_what_check_says() -> None:
    own = {"batch": 2, "image_size": "160x160", "precision": "fp32"}
    grid = oomproof.what_if(DETECTOR, "T4", {name: [value] for name, value in own.items()} | {"batch": [1]}, **own)
    assert [axis.values for axis in grid.axes] == [(1, 2), ((160, 160),), ("fp32",)]
    for place, batch in enumerate((1, 2)):
        fresh = oomproof.check(DETECTOR, "T4", **{**own, "batch": batch})
        cell = grid.cells[place, 0, 0][0]
        assert (cell.allocated, cell.reserved, cell.on_device) == (fresh.allocated, fresh.reserved, fresh.on_device)
        assert cell.allocated.low < 0.99 * cell.allocated.expected, "on sparse data it takes less"


@pytest.mark.slow
@pytest.mark.thorough
def test_what_is_offered_of_a_detector_is_what_check_says() -> None:
    """Batch, precision, image size, boxes and optimizer: at ten settings, drawn by chance. This one has no repeated
    blocks that could be computed again."""
    own = {"batch": 1, "image_size": "160x160"}
    grid = oomproof.what_if(DETECTOR, "T4", **own)
    names = [axis.name for axis in grid.axes]
    assert names == ["batch", "image_size", "precision", "boxes", "optimizer"]
    assert dict(zip(names, (axis.values for axis in grid.axes), strict=True)) | {"image_size": ()} == {
        "batch": (1, 2),
        "image_size": (),
        "precision": ("fp32", "fp16"),
        "boxes": (20, 93, 200),
        "optimizer": ("own", "adamw"),
    }
    assert len(grid.cells) == 2 * 2 * (1 + 2 + 2 + 1)
    for place in random.Random(7).sample(sorted(grid.cells), 10):
        values: dict[str, Any] = {axis.name: axis.values[at] for axis, at in zip(grid.axes, place, strict=True)}
        fresh, cell = oomproof.check(DETECTOR, "T4", **values), grid.cells[place][0]
        assert cell.on_device.expected == pytest.approx(fresh.on_device.expected, rel=0.01), values
        assert cell.on_device.high == pytest.approx(fresh.on_device.high, rel=0.01), values
        assert cell.outcome == fresh.outcome


@pytest.mark.thorough
@pytest.mark.slow
def test_moving_one_of_those_that_are_alone_takes_the_others_back(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert main(["check", "torchvision:squeezenet1_1", "--batch", "1", "--image-size", "64x64", "--on", "T4", "-q",
                 "--html", str(path)]) == 0  # fmt: skip
    page, troubles = look(path)
    names = page.locator(".what-if label").all_inner_texts()
    assert names == ["batch: 1", "image_size: 64x64", "precision", "optimizer", "checkpoint", "GPU"]
    plain = page.inner_text("#answer")
    begin = "oomproof check torchvision:squeezenet1_1 --batch"
    assert page.inner_text("#command") == f'{begin} 1 --image-size 64x64 --set precision=fp32 --on "Tesla T4"'
    page.locator("#axis-3").select_option(label="adamw")
    page.locator("#axis-0").fill("1")
    assert "--batch 2" in page.inner_text("#command") and "--set optimizer=adamw" in page.inner_text("#command")
    page.locator("#axis-1").fill("2")
    assert "--image-size 96x96" in page.inner_text("#command")
    assert "optimizer" not in page.inner_text("#command"), "image sizes were looked at with the job's own optimizer"
    assert page.locator("#axis-3").input_value() == "0"
    fresh = oomproof.check("torchvision:squeezenet1_1", "T4", batch=2, image_size="96x96")
    assert page.inner_text("#answer").startswith(f"fits: {fresh.on_device.expected / GIB:.2f} of 14.56 GiB")
    page.locator("#axis-0").fill("0")
    page.locator("#axis-1").fill("1")
    assert page.inner_text("#answer") == plain
    assert "one at a time" in page.inner_text("main")
    assert not troubles


@pytest.mark.slow
@pytest.mark.thorough
def test_a_scripts_own_options_are_offered(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "script.html"
    command = ["python", str(SCRIPT), "--batch-size", "4", "--image-size", "64"]
    assert main(["check", "--on", "T4", "-q", "--html", str(path), "--", *command]) == 0
    page, troubles = look(path)
    assert page.locator(".what-if label").all_inner_texts() == ["batch_size: 4", "image_size: 64", "amp", "GPU"]
    page.locator("#axis-0").fill("2")
    said = f'oomproof check --on "Tesla T4" -- python {SCRIPT} --batch-size 8 --image-size 64'
    assert page.inner_text("#command") == said
    fresh = oomproof.check("-- " + said.partition(" -- ")[2], "T4")
    assert f"{fresh.on_device.expected / GIB:.2f} of" in page.inner_text("#answer")
    page.locator("#axis-2").select_option(label="true")
    assert page.inner_text("#command").endswith("--batch-size 4 --image-size 64 --amp"), "one at a time"
    assert page.locator("#settings-file").count() == 0, "there is no settings file for a script"
    grid = oomproof.what_if("-- " + " ".join(command), "T4")
    assert [axis.name for axis in grid.axes] == ["batch_size", "image_size", "amp"], "known only once it has run"
    assert not troubles
