"""Published models as tables and JSON: grouped by what they give, with the changes that make them fit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from forecasts import MIB, mask_rcnn
from plans import as_it_is, brought_to_fit, too_large
from rich.console import Console, RenderableType

from oomproof.report import zoo
from oomproof.report.zoo import ZooRow
from oomproof.sources.zoo import Published

MASKS = Published(
    "torchvision:maskrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "detection", "masks", "mask AP", 34.6, "COCO-val2017",
    "https://example.org/recipes/detection#mask", 800, 44_401_393, 134.38,
)  # fmt: skip
BOXES = replace(
    MASKS, job="torchvision:fcos", model="fcos", outputs="boxes", metric="box AP", value=39.2,
    source="https://example.org/pull/7",
)  # fmt: skip


def text(report: RenderableType, width: int = 110) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


def test_listing_shows_figures_and_sources() -> None:
    lines = text(zoo.build_listing([BOXES, MASKS])).splitlines()
    assert lines[0] == "Boxes (box AP on COCO-val2017, %)"
    assert lines[2].split() == ["fcos", "39.2", "44.4", "M", "134.4"]
    assert lines[3].strip() == "pull/7"
    assert "Boxes and masks (mask AP on COCO-val2017, %)" in lines
    assert "recipes/detection#mask" in text(zoo.build_listing([BOXES, MASKS]))
    assert lines[-1].startswith("Sources are under https://example.org/;")


def test_what_fits_as_it_is_says_how_it_is_trained() -> None:
    report = text(zoo.survey([ZooRow(MASKS, mask_rcnn(12042 * MIB))], "RTX 3060 12GB"))
    assert report.startswith("RTX 3060 12GB trains 1 of these 1 models: 1 as they are.")
    assert "fits: batch 2, 800x1333" in report
    assert "time/image" not in report


def test_more_at_worst_than_there_is_is_explained() -> None:
    roomy = mask_rcnn(12042 * MIB)
    tight = replace(roomy, wanted=12100 * MIB)
    assert tight.fits and "part of it is workspace" in text(zoo.survey([ZooRow(MASKS, tight)], "RTX 3060 12GB"), 240)
    assert "cache" not in text(zoo.survey([ZooRow(MASKS, roomy)], "RTX 3060 12GB"), 240)


def test_changes_are_named() -> None:
    plan = brought_to_fit()
    rows = [ZooRow(BOXES, as_it_is().before), ZooRow(MASKS, plan.before, plan)]
    report = " ".join(text(zoo.survey(rows, "RTX 3060 12GB")).split())
    assert "trains 2 of these 2 models: 1 as they are, 1 with changes." in report
    assert "9.81 10.90 +4 % fits: checkpoint none -> 12 modules, batch" in report  # below the model's name
    assert "4 x 4" in report


def test_nothing_fits() -> None:
    plan = too_large()
    row = ZooRow(MASKS, plan.before, plan)
    assert not row.fits
    report = text(zoo.survey([row], "3GiB"))
    assert report.startswith("3GiB trains none of these 1 models.")
    assert "does not fit" in report


def test_a_model_that_cannot_be_trained_so() -> None:
    row = ZooRow(MASKS, problem="the job raised ValueError: one value per channel")
    assert not row.fits
    assert "one value per channel" in text(zoo.survey([row], "8GiB"))
    assert zoo.document([row])[0]["fits"] is False
    assert zoo.document([row])[0]["problem"] == row.problem


@pytest.mark.parametrize("width", [40, 80, 120])
def test_any_width(width: int) -> None:
    plan = brought_to_fit()
    report = text(zoo.survey([ZooRow(MASKS, plan.before, plan)], "RTX 3060 12GB"), width)
    assert max(map(len, report.splitlines())) <= width


def test_json() -> None:
    plan = brought_to_fit()
    fitted, plain, listed = zoo.document(
        [ZooRow(MASKS, plan.before, plan), ZooRow(MASKS, as_it_is().before), ZooRow(BOXES)]
    )
    json.dumps([fitted, plain, listed], allow_nan=False)
    assert fitted.keys() == plain.keys() == listed.keys()
    assert (fitted["model"], fitted["task"], fitted["metric"], fitted["value"]) == (
        "torchvision:maskrcnn_resnet50_fpn",
        "detection",
        "mask AP",
        34.6,
    )
    assert fitted["fits"] is True
    assert [change["knob"] for change in fitted["changes"]] == ["checkpoint", "batch"]
    assert (fitted["settings"]["batch"], fitted["settings"]["image_size"]) == (4, [800, 1333])
    assert fitted["device"]["high"] == plan.after.on_device.high
    assert (plain["changes"], plain["time"], plain["settings"]["batch"]) == ([], 1.0, 2)
    assert (listed["fits"], listed["settings"], listed["device"]) == (None, None, None)


def test_what_is_not_published_is_left_empty() -> None:
    entry = replace(BOXES, job="COCO-Detection/rpn.yaml", parameters=0, gflops=0.0)
    assert text(zoo.build_listing([entry, MASKS])).splitlines()[2].split() == ["rpn.yaml", "39.2"]
    [row] = zoo.document([ZooRow(entry)])
    assert row["parameters"] is None and row["gflops"] is None
