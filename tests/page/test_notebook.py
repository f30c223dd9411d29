"""Answers in a notebook: IPython, asked as a notebook asks it, has the page for them, and a browser shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

IMPORTED = "import sys, oomproof; oomproof.explain; assert 'oomproof.page.notebook' not in sys.modules"
CELLS = """
import sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
assert shell.run_cell("import oomproof").success
answers = {
    "why": "oomproof.explain('CUDA out of memory. Tried to allocate 2.00 GiB.')",
    "forecast": "oomproof.check('torchvision:resnet18', 'T4', batch=1, image_size='64x64')",
    "sweep": "oomproof.sweep('torchvision:resnet18', 'T4', 'batch', [1, 2], image_size='64x64')",
}
for name, code in answers.items():
    assert shell.run_cell(f"{name} = {code}").success
    html = shell.display_formatter.format(shell.user_ns[name])[0]["text/html"]
    assert html.startswith("<iframe srcdoc="), html[:200]
    assert "&lt;script&gt;" in html and "<script>" not in html
    Path(sys.argv[1], f"{name}.html").write_text(f"<!doctype html><meta charset=utf-8>{html}", encoding="utf-8")
"""
SHOWN = {"why": "memory", "forecast": "fits Tesla T4", "sweep": "The largest batch that fits Tesla T4 is 2"}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of three cells, each in a file."""
    pytest.importorskip("IPython", reason="IPython is not installed")
    pytest.importorskip("plotly", reason="Plotly is not installed")
    folder = tmp_path_factory.mktemp("cells")
    done = subprocess.run([sys.executable, "-c", CELLS, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_an_answer_shows_itself_as_the_page(cells: Path, browser: Any, name: str) -> None:
    page = browser.new_context().new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((cells / f"{name}.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready][data-drawn]").wait_for(timeout=120_000)
    assert SHOWN[name] in frame.locator("#verdict").inner_text()
    assert frame.locator(".chart .main-svg").count() > 0 or name == "why"
    assert not troubles


def test_nothing_is_loaded_elsewhere() -> None:
    subprocess.run([sys.executable, "-c", IMPORTED], check=True)
