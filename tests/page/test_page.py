"""The page of a check in a real browser: every control, no error, no request, and the figures of the forecast."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import oomproof
from oomproof.cli import main

if TYPE_CHECKING:
    from conftest import Look, Wait

pytestmark = pytest.mark.slow
GIB = 1 << 30
MOST_BYTES = 6e6


def test_the_page_says_what_the_forecast_says(look: Look, report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "torchvision:resnet18", "--batch", "4", "--image-size", "64x64", "--on", "T4", "-q",
          "--set", "classes=7", "--json"])  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    page, troubles = look(report)
    assert page.inner_text("#verdict") == document["verdict"]
    told = page.inner_text("main")
    assert f"{document['device']['expected'] / GIB:.2f} GiB expected" in page.inner_text("#bar")
    assert f"budget {document['budget'] / GIB:.2f} GiB" in page.inner_text("#bar")
    assert f"peak {document['allocated']['expected'] / GIB:.2f} GiB" in page.inner_text("#curve")
    assert "For\ntorchvision:resnet18: batch 4" in told and "Why\nthe peak is in" in told and "Next\n" in told
    assert "layer4" in page.inner_text("#modules")
    assert "Tesla T4" in page.inner_text("#cards")
    assert report.stat().st_size < MOST_BYTES
    assert not troubles


@pytest.mark.thorough
def test_hover_tells_module_operation_shape_and_bytes(look: Look, report: Path) -> None:
    page, troubles = look(report)
    told = page.evaluate("document.getElementById('curve').data.at(-1).text")
    assert "forward: convolution in conv1, [4, 64, 32, 32], 1.0 MiB" in told
    assert any(": convolution_backward in layer" in each and ", workspace for [4, " in each for each in told)
    page.locator("#curve").scroll_into_view_if_needed()
    page.hover("#curve .draglayer .nsewdrag", position={"x": 400, "y": 200})
    page.wait_for_selector("#curve .hoverlayer .legendtext")
    shown = page.locator("#curve .hoverlayer").text_content()
    assert any(each.partition(": ")[2] in shown for each in told if each)
    said = r"The peak is in .+ \(\w+: (workspace for )?\[[\d, ]+\], [\d.]+ [KMG]iB\)\. Hover"
    assert re.search(said, page.inner_text("main"))
    assert not troubles


@pytest.mark.thorough
def test_text_is_there_before_plotly(look: Look, report: Path) -> None:
    """Plotly takes longer to read than all the rest: nobody waits for it to read the verdict."""
    page, troubles = look(report, before="""
        let loaded;
        Object.defineProperty(window, "Plotly", { get: () => loaded, set: (value) => {
          loaded = value;
          window.shownBefore = document.getElementById("main").innerText;
        } });""")  # fmt: skip
    before = page.evaluate("window.shownBefore")
    assert "GiB expected" in before and "Which GPUs would do" in before and "fits: 2, 4" in before
    marks = page.evaluate("performance.getEntriesByType('mark').map((each) => each.name)")
    assert marks == ["text", "ready"]
    assert not troubles


@pytest.mark.thorough
def test_sliders_show_what_fresh_traces_say(look: Look, report: Path) -> None:
    """At ten settings, drawn by chance; and the command says all that the user had said."""
    page, troubles = look(report)
    labels = page.locator("#card option").all_inner_texts()
    chance = random.Random(7)
    for _ in range(10):
        place, label = [chance.randrange(2) for _ in range(3)], chance.choice(labels)
        for number, at in enumerate(place[:2]):
            page.locator(f"#axis-{number}").fill(str(at))
        batch, size, precision = (2, 4)[place[0]], ("64x64", "96x96")[place[1]], ("fp32", "fp16")[place[2]]
        page.locator("#axis-2").select_option(label=precision)
        page.locator("#card").select_option(label=label)
        card, has = label.rsplit(", ", 1)
        fresh = oomproof.check(
            "torchvision:resnet18", card, batch=batch, image_size=size, precision=precision, classes=7
        )
        told = f"{fresh.on_device.expected / GIB:.2f} of {has} (at worst {fresh.on_device.high / GIB:.2f})"
        assert page.inner_text("#answer") == f"{fresh.outcome}: {told}"
        assert f"peak {fresh.allocated.expected / GIB:.2f} GiB" in page.inner_text("#what-if-curve")
        expected, low, high = (getattr(fresh.on_device, name) / GIB for name in ("expected", "low", "high"))
        assert f"{expected:.2f} GiB expected, {low:.2f} to {high:.2f};" in page.inner_text("#what-if-bar")
        assert page.inner_text("#command") == (
            f"oomproof check torchvision:resnet18 --set classes=7 --batch {batch} --image-size {size} "
            f'--set precision={precision} --on "{card}"'
        )
        assert page.inner_text(".what-if").count("fits: 2, 4") == 1
    assert not troubles


@pytest.mark.thorough
def test_the_settings_file_gives_the_same_answer(
    look: Look, report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, _ = look(report)
    page.locator("#axis-0").fill("0")
    page.locator("#axis-1").fill("1")
    page.locator("#axis-2").select_option(label="fp16")
    file = tmp_path / "settings.json"
    file.write_text(page.evaluate("document.getElementById('settings-file').textContent"))
    main(["check", "torchvision:resnet18", "--from", str(file), "--on", "Tesla T4", "-q", "--json"])
    found = json.loads(capsys.readouterr().out)
    names = ("batch", "image_size", "precision", "classes")
    assert [found["settings"][name] for name in names] == [2, [96, 96], "fp16", 7]
    assert f"{found['device']['expected'] / GIB:.2f} of" in page.inner_text("#answer")


@pytest.mark.thorough
def test_the_command_is_copied(look: Look, wait_until: Wait, report: Path) -> None:
    page, troubles = look(report, permissions=["clipboard-read", "clipboard-write"])
    page.click("#copy")
    wait_until(page, "document.querySelector('#copy + [role=status]').textContent.includes('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == page.inner_text("#command")
    assert not troubles


@pytest.mark.thorough
def test_by_keyboard_on_a_phone(look: Look, report: Path) -> None:
    """Tab reaches every control, and arrows and Enter work them."""
    page, troubles = look(report, width=390, color_scheme="dark")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    for control in ("search", "SUMMARY", "axis-0", "axis-1", "axis-2", "card", "command", "copy"):
        assert control in reached
    page.focus("#axis-0")
    assert "--batch 4" in page.inner_text("#command")
    page.keyboard.press("ArrowLeft")
    assert "--batch 2" in page.inner_text("#command")
    assert page.get_attribute("#axis-0", "aria-valuetext") == "2"
    page.focus("#search")
    page.keyboard.type("LAYER4")
    assert page.evaluate("document.getElementById('modules').data[0].level").endswith("layer4")
    page.locator("summary", has_text="As a table").first.focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#module-rows tbody tr:first-child").startswith("layer4")
    assert "conv1" not in page.inner_text("#module-rows tbody tr:first-child")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390, "a phone would have to scroll sideways"
    assert not troubles


@pytest.mark.thorough
def test_a_click_goes_into_a_module(look: Look, wait_until: Wait, report: Path) -> None:
    page, troubles = look(report)
    page.locator("#modules .slice", has_text="layer4").first.click()
    wait_until(page, "document.getElementById('modules').data[0].level === 'layer4'")
    assert not troubles


@pytest.mark.thorough
def test_everything_has_a_name_for_screen_readers(look: Look, report: Path) -> None:
    page, _ = look(report)
    unnamed = """[...document.querySelectorAll('input, select, [role=img], [role=region]')].filter((node) =>
        !node.getAttribute('aria-label') && !(node.labels && node.labels.length)).map((node) => node.outerHTML)"""
    assert page.evaluate(unnamed) == []
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((node) => Number(node.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.get_attribute("html", "lang") == "en"


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(look: Look, report: Path, scheme: str) -> None:
    """By 4.5 to 1, as the Web Content Accessibility Guidelines ask."""
    page, _ = look(report, color_scheme=scheme)
    contrast = """(name, ground) => {
      const root = getComputedStyle(document.documentElement);
      const light = (name) => { const hex = root.getPropertyValue(name).trim();
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
          .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const [low, high] = [light(name), light(ground)].sort((a, b) => a - b);
      return (high + 0.05) / (low + 0.05); }"""
    for name in ("--front", "--soft", "--accent", "--fits", "--risk", "--fails"):
        for ground in ("--back", "--card"):
            assert page.evaluate(f"({contrast})('{name}', '{ground}')") >= 4.5, (name, ground)


@pytest.mark.thorough
def test_on_paper_pictures_are_as_wide_as_the_sheet(look: Look, report: Path) -> None:
    page, troubles = look(report, color_scheme="dark")
    wide = "[...document.querySelectorAll('.chart .main-svg')].map((node) => node.getBoundingClientRect().width)"
    assert max(page.evaluate(wide)) > 1000
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert max(page.evaluate(wide)) < 700
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    text = page.evaluate("getComputedStyle(document.querySelector('.xtick text')).fill")
    assert (back, text) == ("rgb(255, 255, 255)", "rgb(27, 31, 36)"), "black on white, whatever the screen has"
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert max(page.evaluate(wide)) > 1000
    assert not troubles
