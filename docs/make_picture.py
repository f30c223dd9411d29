"""Writes docs/page.png, the picture of a page in README.md, by making that page and looking at it.

python docs/make_picture.py      (needs Playwright, and Debian's chromium or one in CHROMIUM)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).with_name("page.png")
COMMAND = (
    "check",
    "torchvision:maskrcnn_resnet50_fpn",
    "--batch",
    "2",
    "--image-size",
    "800x1333",
    "--on",
    "RTX 3060 12GB",
    "--what-if",
    "none",  # below what the picture shows
)
WIDTH, HEIGHT = 1000, 985


def draw_page(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        page_file = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-m", "oomproof", *COMMAND, "--html", str(page_file), "-q"], check=True)
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}).new_page()
        page.goto(page_file.as_uri())
        page.wait_for_selector("body[data-ready][data-drawn]")
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    draw_page(PICTURE)
