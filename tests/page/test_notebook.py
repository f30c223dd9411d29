"""Answers in a notebook: IPython, asked as a notebook asks it, has the page for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("IPython", reason="IPython is not installed")
pytest.importorskip("plotly", reason="Plotly is not installed")

CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
assert shell.run_cell("import oomproof").success
assert shell.run_cell("why = oomproof.explain('CUDA out of memory. Tried to allocate 2.00 GiB.')").success
html = shell.display_formatter.format(shell.user_ns["why"])[0]["text/html"]
assert html.startswith("<iframe srcdoc=") and "oomproof" in html, html[:200]
assert "&lt;script&gt;" in html and "<script>" not in html
"""


@pytest.mark.slow
def test_an_answer_shows_itself_as_the_page() -> None:
    done = subprocess.run([sys.executable, "-c", CELLS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_loaded_elsewhere() -> None:
    code = "import sys, oomproof; oomproof.explain; assert 'oomproof.page.notebook' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
