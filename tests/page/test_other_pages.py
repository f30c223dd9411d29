"""The pages of a sweep, a plan, a dataset, a validation and a diagnosis, in a real browser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import oomproof
from oomproof.cli import main
from oomproof.memory.batch_spec import BatchSpec, ImageSpec
from oomproof.memory.epoch import Batch, Epoch, Remedy
from oomproof.page.documents import check_document
from oomproof.page.write_page import write_page

if TYPE_CHECKING:
    from conftest import Look, Wait

pytestmark = pytest.mark.slow
GIB = 1 << 30


@pytest.mark.thorough
def test_a_sweep_is_drawn_against_its_budget(look: Look, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sweep.html"
    command = [
        "check",
        "torchvision:resnet18",
        "--image-size",
        "64x64",
        "--on",
        "1500MiB",
        "--sweep",
        "batch=1,512,1024",
    ]
    assert main([*command, "-q", "--json", "--html", str(path)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    page, troubles = look(path, width=390)
    assert page.inner_text("#verdict").startswith("The largest batch that fits 1.46 GiB is 1:")
    told = page.inner_text("tbody")
    for row in rows:
        assert f"{row['device']['expected'] / GIB:.2f}\t{row['device']['high'] / GIB:.2f}" in told
    assert all(mark in told for mark in ("✓ fits", "! at risk", "✗ does not fit"))
    groups = page.evaluate("""document.getElementById('sweep').data.slice(1).map((each) =>
        [each.name, each.marker.symbol, [...each.x], [...each.y], each.error_y.array.at(-1)])""")
    assert sorted(x for group in groups for x in group[2]) == [1, 512, 1024]
    assert len({symbol for _, symbol, *_ in groups}) == len(groups) == 3
    last = rows[-1]["device"]
    name, symbol, x, y, above = next(group for group in groups if 1024 in group[2])
    assert (name, symbol, x[-1]) == ("✗ does not fit", "x", 1024)
    assert y[-1] == pytest.approx(last["expected"] / GIB)
    assert above == pytest.approx((last["high"] - last["expected"]) / GIB)
    assert f"budget {rows[0]['budget'] / GIB:.2f} GiB" in page.inner_text("#sweep")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not troubles


@pytest.mark.thorough
def test_host_ram_has_a_picture_of_its_own(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    assert main(["check", "torchvision:resnet18", "--image-size", "64x64", "--on", "8GiB", "--ram", "2GiB", "-q",
                 "--sweep", "workers=0,4", "--html", str(path)]) == 2  # fmt: skip
    page, troubles = look(path)
    symbols = "document.getElementById('{}').data.slice(1).map((each) => each.marker.symbol)"
    assert page.evaluate(symbols.format("sweep")) == ["circle"], "the device has room"
    assert page.evaluate(symbols.format("sweep-host")) == ["x"]
    assert "does not fit (host RAM)" in page.inner_text("tbody")
    assert not troubles


@pytest.mark.thorough
def test_values_without_a_size_are_swept_by_name(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    main(["check", "torchvision:resnet18", "--batch", "2", "--image-size", "64x64", "--on", "8GiB", "-q",
          "--sweep", "precision=fp32,fp16", "--html", str(path)])  # fmt: skip
    page, troubles = look(path)
    assert page.inner_text("#verdict") == "8.00 GiB fits precision: fp32, fp16."
    assert "fp16" in page.inner_text("#sweep")
    assert not troubles


@pytest.mark.thorough
def test_batches_of_the_data_are_drawn_and_named(look: Look, tmp_path: Path) -> None:
    forecast = oomproof.check("torchvision:resnet18", "T4", batch=1, image_size="64x64")

    def batch(name: str, objects: int) -> Batch:
        spec = BatchSpec((ImageSpec(480, 640, objects, name),))
        return Batch(spec, (480, 640), forecast.allocated, forecast.on_device, "at risk")

    epoch = Epoch("crowd.json", 200, 50, "any images share a batch", True, batch("<b>7.jpg", 120), batch("3.jpg", 4),
                  0.25, False, (Remedy("drop", 1, ("<b>7.jpg",), 1),), 9, 0, ((4, GIB), (11, 2 * GIB)))  # fmt: skip
    path = tmp_path / "data.html"
    path.write_text(write_page(check_document(replace(forecast, epoch=epoch), ())), encoding="utf-8")
    page, troubles = look(path)
    told = page.inner_text("main")
    assert "about 0.25 that an epoch has a batch that is at risk" in told
    assert "drop 1 image: <b>7.jpg" in told
    read = "document.getElementById('batches').data.map((each) => [each.name, [...each.x], [...each.y]])"
    drawn = page.evaluate(read)
    peak = forecast.allocated.expected / GIB
    assert drawn == [["drawn by chance", [4, 11], [1, 2]], ["typical", [4], [peak]], ["worst", [120], [peak]]]
    assert not troubles


@pytest.mark.thorough
def test_validation_and_host_ram_stand_beside_training(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "parts.html"
    main(["check", "torchvision:resnet18", "--batch", "2", "--image-size", "64x64", "--on", "T4", "--validate",
          "--ram", "2GiB", "--what-if", "none", "-q", "--html", str(path)])  # fmt: skip
    page, troubles = look(path)
    rows = page.locator("section", has_text="Parts of the run").locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows[:3]] == ["training step", "validation", "host RAM"]
    assert "✗ does not fit" in rows[2]
    assert "validation" in page.inner_text("#validation-curve")
    assert not troubles


def test_the_page_of_a_plan(look: Look, wait_until: Wait, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.html"
    command = ["fit", "torchvision:resnet18", "--batch", "64", "--on", "2GiB", "-q", "--json", "--html", str(path)]
    assert main(command) == 0
    plan = json.loads(capsys.readouterr().out)
    page, troubles = look(path)
    assert page.inner_text("#verdict") == plan["verdict"]
    told = page.inner_text("main")
    for change in plan["changes"]:
        assert f"{change['frees'] / GIB:.2f}" in told and change["why"] in told
    assert f"{plan['before']['device']['expected'] / GIB:.2f} GiB expected" in told
    assert f"{plan['after']['device']['expected'] / GIB:.2f} GiB expected" in page.inner_text("#bar")
    assert "RTX 4090" in page.inner_text("#cards")
    assert len(plan["frontier"]) > 1
    page.locator("#frontier .points path").first.click(force=True)
    first = plan["frontier"][0]
    wait_until(page, "!document.getElementById('point').textContent.startsWith('Click')")
    assert f"{first['device'] / GIB:.2f} GiB at worst, {first['time']:.2f} times the time" in page.inner_text("#point")
    assert not troubles


@pytest.mark.thorough
def test_a_plan_without_changes_has_one_bar(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    command = ["fit", "torchvision:resnet18", "--batch", "1", "--image-size", "64x64", "--on", "8GiB", "-q"]
    assert main([*command, "--html", str(path)]) == 0
    page, troubles = look(path)
    told = page.inner_text("main")
    assert "On the card" in told and "Before and after" not in told
    assert told.count("GiB expected") == 1
    assert not troubles


def test_the_page_of_a_diagnosis(look: Look, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, why = tmp_path / "train.log", tmp_path / "why.html"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
                   "of 7.66 GiB of which 1.00 GiB is free.\n")  # fmt: skip
    assert main(["explain", str(log), "--json", "--html", str(why)]) == 0
    document = json.loads(capsys.readouterr().out)
    page, troubles = look(why)
    assert page.inner_text("#verdict") == document["verdict"]
    assert document["why"] in page.inner_text("main") and document["next"] in page.inner_text("main").replace("\n", " ")
    assert all(cause["id"] in page.inner_text("main") for cause in document["causes"])
    page.set_viewport_size({"width": 390, "height": 800})
    hidden = "[...document.querySelectorAll('.scroll')].map((node) => node.scrollWidth - node.clientWidth)"
    assert max(page.evaluate(hidden), default=0) <= 0, "on a phone, reasons would have to be scrolled to"
    assert why.stat().st_size < 100_000
    assert not troubles


def test_pages_are_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ["check", "torchvision:resnet18", "--on", "T4"]
    assert main([*job, "--html", str(tmp_path / "no" / "report.html")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    both = ["--sweep", "batch=1,2", "--what-if", "batch=1,2"]
    assert main([*job, "--html", str(tmp_path / "r.html"), *both]) == 1
    assert "leave one of them out" in capsys.readouterr().err
    assert main([*job, "--what-if", "batch=1,2"]) == 1
    assert "--html report.html" in capsys.readouterr().err
    assert main([*job, "-q", "--html", str(tmp_path / "r.html"), "--what-if", "batsh=1,2"]) == 1
    assert "no such setting" in capsys.readouterr().err


def test_a_missing_plotly_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for command in ("check", "fit"):
        assert main([command, "torchvision:resnet18", "--on", "T4", "--html", str(tmp_path / "r.html")]) == 1
        err = capsys.readouterr().err
        assert "pip install 'oomproof[page]'" in err and "opening" not in err
