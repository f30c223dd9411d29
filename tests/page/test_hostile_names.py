"""Names from jobs, data and logs are text on a page, whatever they contain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import oomproof
from oomproof.cli import main
from oomproof.memory.batch_spec import BatchSpec, ImageSpec
from oomproof.memory.curve import Curve
from oomproof.memory.epoch import Batch, Epoch, Remedy
from oomproof.page.documents import check_document, sweep_document
from oomproof.page.write_page import write_page
from thorough import thorough_but

if TYPE_CHECKING:
    from conftest import Look

pytestmark = pytest.mark.slow
GIB = 1 << 30
ATTACK = "document.documentElement.dataset.owned='yes'"
NAMES = (
    f'</script><script>{ATTACK}</script><img src=x onerror="{ATTACK}">',
    f"'\"><svg onload={ATTACK}>",
    f'<a href="javascript:{ATTACK}">%{{x}} %{{customdata}}</a>',
    "<!-- <script> ${1+1} `ls` $(ls) %%SCRIPT%% \\u003c &lt;b&gt;",
    "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd 🙂 __proto__",
    "w" * 3000,
)


@pytest.mark.parametrize(
    "hostile", thorough_but(NAMES[:1], NAMES), ids=["script", "quotes", "template", "comment", "right-to-left", "long"]
)
def test_names_of_a_check_are_text(look: Look, tmp_path: Path, hostile: str) -> None:
    forecast = oomproof.check("torchvision:resnet18", "T4", batch=1, image_size="64x64")
    modules = {hostile.replace(".", "_"): GIB, "<b>bold</b>": GIB}
    curve = Curve(
        np.array([0, 5]), {"activation": np.array([GIB, GIB])}, ((0, "forward"),), ((hostile, hostile, GIB),) * 2
    )
    batch = Batch(
        BatchSpec((ImageSpec(4, 6, 9, hostile),)), (4, 6), forecast.allocated, forecast.on_device, "does not fit"
    )
    epoch = Epoch(hostile, 2, 1, hostile, True, batch, batch, 0.5, False, (Remedy("drop", 1, (hostile,), 1),), 9, 0, ())
    forecast = replace(forecast, job=hostile, modules=modules, owner=hostile, op=hostile, notes=(hostile,), curve=curve,
                       epoch=epoch, settings=forecast.settings.with_values({hostile: hostile}))  # fmt: skip
    path = tmp_path / "hostile.html"
    path.write_text(write_page(check_document(forecast, ())), encoding="utf-8")
    page, troubles = look(path, width=390)
    assert page.evaluate("document.documentElement.dataset.owned") is None
    assert page.title().startswith(" ".join(hostile.split())[:40])
    told = page.evaluate("document.getElementById('main').textContent")
    shown = hostile.replace("`", "")  # backticks in sentences become the frame around what is typed
    assert told.replace("`", "").count(shown) >= 5
    assert "<b>bold</b>" in page.inner_text("#modules")
    page.fill("#search", hostile[:20])
    page.hover("#curve .draglayer .nsewdrag", position={"x": 100, "y": 100})
    assert page.evaluate("document.documentElement.dataset.owned") is None
    assert page.evaluate("document.querySelectorAll('main a, main img, main svg a[href]').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not troubles


@pytest.mark.thorough
def test_names_of_a_sweep_are_text(look: Look, tmp_path: Path) -> None:
    hostile = NAMES[0]
    sweep = oomproof.sweep("torchvision:resnet18", "T4", "batch", [1, 2], image_size="64x64")
    rows = tuple(
        (f"{hostile}{at}", replace(row, job=hostile, notes=(hostile,))) for at, (_, row) in enumerate(sweep.rows)
    )
    path = tmp_path / "sweep.html"
    path.write_text(write_page(sweep_document(replace(sweep, name=hostile, rows=rows))), encoding="utf-8")
    page, troubles = look(path)
    assert page.evaluate("document.documentElement.dataset.owned") is None
    assert hostile in page.inner_text("h2") and f"{hostile}1" in page.inner_text("tbody")
    assert not troubles


def test_lines_of_a_log_are_text(look: Look, tmp_path: Path) -> None:
    log, path = tmp_path / "<b>train.log", tmp_path / "why.html"
    frames = "".join(f'  File "{name[:200]}", line 7, in {name[:200]}\n' for name in NAMES)
    log.write_text(
        f"Traceback (most recent call last):\n{frames}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        f"2.00 GiB. GPU 0 has a total capacity of 7.66 GiB of which 1.00 GiB is free. {NAMES[0]}\n",
        encoding="utf-8",
    )
    assert main(["explain", str(log), "--html", str(path)]) == 0
    page, troubles = look(path)
    assert page.evaluate("document.documentElement.dataset.owned") is None
    assert NAMES[0] in page.inner_text("main")
    assert page.evaluate("document.querySelectorAll('main img, main svg, main a').length") == 0
    assert not troubles
