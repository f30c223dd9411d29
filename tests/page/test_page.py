"""The page in a real browser: every control, no error, no request, and the figures of the forecast.

Needs Debian's chromium (or one in CHROMIUM) and Playwright; without them these are skipped.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oomproof
from oomproof.cli import main
from oomproof.memory.batch_spec import BatchSpec, ImageSpec
from oomproof.memory.epoch import Batch, Epoch, Remedy
from oomproof.page.documents import check_document
from oomproof.page.write_page import write_page

pytest.importorskip("plotly", reason="Plotly is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: the page is not looked at"),
]
GIB = 1 << 30


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    axes = ("--what-if", "batch=2,4", "--what-if", "image_size=64x64,96x96", "--what-if", "precision=fp32,fp16")
    assert main(["check", "torchvision:resnet18", "--batch", "4", "--image-size", "64x64", "--on", "T4", "-q",
                 "--html", str(path), *axes]) == 0  # fmt: skip
    return path


def opened(browser: Any, path: Path, width: int = 1200, **options: Any) -> tuple[Any, list[str]]:
    page = browser.new_context(viewport={"width": width, "height": 900}, **options).new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: None if request.url == path.as_uri() else troubles.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    return page, troubles


def test_the_page_says_what_the_forecast_says(browser: Any, report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "torchvision:resnet18", "--batch", "4", "--image-size", "64x64", "--on", "T4", "-q", "--json"])
    document = json.loads(capsys.readouterr().out)
    page, troubles = opened(browser, report)
    assert page.inner_text("#verdict") == document["verdict"]
    expected = f"{document['device']['expected'] / GIB:.2f} GiB expected"
    assert expected in page.inner_text("#bar")
    assert f"peak {document['allocated']['expected'] / GIB:.2f} GiB" in page.inner_text("#curve")
    assert "layer4" in page.inner_text("#modules")
    assert "Tesla T4" in page.inner_text("#cards")
    assert report.stat().st_size < 6e6
    assert not troubles


def test_sliders_show_what_fresh_traces_say(browser: Any, report: Path) -> None:
    """At ten settings, drawn by chance."""
    page, troubles = opened(browser, report)
    labels = page.locator("#card option").all_inner_texts()
    chance = random.Random(7)
    for _ in range(10):
        place, label = [chance.randrange(2) for _ in range(3)], chance.choice(labels)
        for number, at in enumerate(place):
            page.locator(f"#axis-{number}").fill(str(at))
        page.locator("#card").select_option(label=label)
        card, has = label.rsplit(", ", 1)
        batch, size, precision = (2, 4)[place[0]], ("64x64", "96x96")[place[1]], ("fp32", "fp16")[place[2]]
        fresh = oomproof.check("torchvision:resnet18", card, batch=batch, image_size=size, precision=precision)
        told = f"{fresh.on_device.expected / GIB:.2f} of {has} (at worst {fresh.on_device.high / GIB:.2f})"
        assert page.inner_text("#answer") == f"{fresh.outcome}: {told}"
        assert page.inner_text("#command") == (
            f"oomproof check torchvision:resnet18 --batch {batch} --image-size {size} --set precision={precision} "
            f'--on "{card}"'
        )
        assert f"fits: {'2, 4'}" in page.inner_text(".what-if")
    assert not troubles


def test_keyboard_and_search(browser: Any, report: Path) -> None:
    page, troubles = opened(browser, report, width=390, color_scheme="dark")
    page.focus("#axis-0")
    assert "--batch 4" in page.inner_text("#command")
    page.keyboard.press("ArrowLeft")
    assert "--batch 2" in page.inner_text("#command")
    page.fill("#search", "layer4")
    assert page.evaluate("document.getElementById('modules').data[0].level").endswith("layer4")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390, "a phone would have to scroll sideways"
    assert not troubles


def test_names_are_text(browser: Any, tmp_path: Path) -> None:
    hostile = "</script><script>document.title='gotcha'</script><img src=x onerror=\"document.title='gotcha'\">"
    forecast = oomproof.check("torchvision:resnet18", "T4", batch=1, image_size="64x64")
    modules = {hostile: GIB, "<b>bold</b>": GIB}
    forecast = replace(forecast, job=hostile, modules=modules, owner=hostile, notes=(hostile, "%%SCRIPT%%"))
    path = tmp_path / "hostile.html"
    path.write_text(write_page(check_document(forecast, ())), encoding="utf-8")
    page, troubles = opened(browser, path)
    assert page.title() == f"{hostile}: oomproof"
    assert hostile in page.inner_text("main")
    assert "%%SCRIPT%%" in page.inner_text("main")
    assert "<b>bold</b>" in page.inner_text("#modules")
    assert not troubles


def test_batches_of_the_data_are_drawn_and_named(browser: Any, tmp_path: Path) -> None:
    forecast = oomproof.check("torchvision:resnet18", "T4", batch=1, image_size="64x64")

    def batch(name: str, objects: int) -> Batch:
        spec = BatchSpec((ImageSpec(480, 640, objects, name),))
        return Batch(spec, (480, 640), forecast.allocated, forecast.on_device, "at risk")

    epoch = Epoch("crowd.json", 200, 50, "any images share a batch", True, batch("<b>7.jpg", 120), batch("3.jpg", 4),
                  0.25, False, (Remedy("drop", 1, ("<b>7.jpg",), 1),), 9, 0, ((4, GIB), (11, 2 * GIB)))  # fmt: skip
    path = tmp_path / "data.html"
    path.write_text(write_page(check_document(replace(forecast, epoch=epoch), ())), encoding="utf-8")
    page, troubles = opened(browser, path)
    told = page.inner_text("main")
    assert "about 0.25 that an epoch has a batch that is at risk" in told
    assert "drop 1 image: <b>7.jpg" in told
    read = "document.getElementById('batches').data.map((each) => [each.name, [...each.x], [...each.y]])"
    drawn = page.evaluate(read)
    peak = forecast.allocated.expected / GIB
    assert drawn == [["drawn by chance", [4, 11], [1, 2]], ["typical", [4], [peak]], ["worst", [120], [peak]]]
    assert not troubles


def test_the_pages_of_a_plan_and_of_a_diagnosis(browser: Any, tmp_path: Path) -> None:
    path, why = tmp_path / "plan.html", tmp_path / "why.html"
    command = ["fit", "torchvision:resnet18", "--batch", "64", "--on", "2GiB", "-q", "--html", str(path)]
    assert main(command) in (0, 2)
    page, troubles = opened(browser, path)
    assert "with" in page.inner_text("#verdict")
    assert "promise" in page.inner_text("main")
    log = tmp_path / "train.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
                   "of 7.66 GiB of which 1.00 GiB is free.\n")  # fmt: skip
    assert main(["explain", str(log), "--html", str(why)]) == 0
    page, more = opened(browser, why)
    assert "memory" in page.inner_text("#verdict")
    assert why.stat().st_size < 100_000
    assert not troubles + more


def test_pages_are_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ["check", "torchvision:resnet18", "--on", "T4"]
    assert main([*job, "--html", str(tmp_path / "no" / "report.html")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert main([*job, "--html", str(tmp_path / "r.html"), "--sweep", "batch=1,2"]) == 1
    assert "--sweep makes many" in capsys.readouterr().err
    assert main([*job, "--what-if", "batch=1,2"]) == 1
    assert "--html report.html" in capsys.readouterr().err
    assert main([*job, "-q", "--html", str(tmp_path / "r.html"), "--what-if", "batsh=1,2"]) == 1
    assert "no such setting" in capsys.readouterr().err
