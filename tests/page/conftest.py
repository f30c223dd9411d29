"""A real browser for pages: Debian's chromium, or the one in CHROMIUM. Where there is none, tests are skipped."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oomproof.cli import main

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
Look = Callable[..., tuple[Any, list[str]]]
Wait = Callable[[Any, str], None]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    pytest.importorskip("plotly", reason="Plotly is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium here: the page is not looked at")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Look]:
    """Opens a file and waits until all is drawn. Gives the page, and what went wrong: errors, requests."""
    contexts = []

    def open_page(path: Path, width: int = 1200, before: str = "", **options: Any) -> tuple[Any, list[str]]:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        if before:
            page.add_init_script(before)
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: None if request.url == path.as_uri() else troubles.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready][data-drawn]", timeout=120_000)
        return page, troubles

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def wait_until() -> Wait:
    """Waits until an expression is true on a page. Playwright's own wait_for_function does so by eval where it is not
    true at once, which the page's Content-Security-Policy forbids (seen in 1.65)."""

    def wait(page: Any, expression: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not page.evaluate(expression):
            assert time.monotonic() < end, f"not true after {seconds} s: {expression}"
            page.wait_for_timeout(50)

    return wait


@pytest.fixture(scope="session")
def report(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A check with sliders."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    axes = ("--what-if", "batch=2,4", "--what-if", "image_size=64x64,96x96", "--what-if", "precision=fp32,fp16")
    assert main(["check", "torchvision:resnet18", "--batch", "4", "--image-size", "64x64", "--on", "T4", "-q",
                 "--set", "classes=7", "--html", str(path), *axes]) == 0  # fmt: skip
    return path
