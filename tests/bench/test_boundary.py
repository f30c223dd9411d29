"""bench/boundary.py on a table of two rows: what it calls a mistake is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("timm", reason="timm is not installed")

pytestmark = pytest.mark.thorough

BENCH = Path(__file__).parents[2] / "bench"
HEAD = "model,layout,img_size,batch_that_fit,step_time_ms,params_m"


def run(table: Path, text: str) -> subprocess.CompletedProcess[str]:
    table.write_text(text)
    command = [sys.executable, str(BENCH / "boundary.py"), str(table)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_both_sides_of_the_boundary_are_asked(tmp_path: Path) -> None:
    rows = (
        "mobilenetv3_small_050,nchw,64,8,5.0,1.59",
        "resnet18,nchw,64,512,100,11.69",
        "no_such_net,nchw,64,8,5,1",
        "resnet34,nchw,64,8,5,60",
    )
    done = run(tmp_path / "table.csv", "\n".join((HEAD, *rows)))
    assert done.returncode == 0, done.stderr
    # 12 small images fit a large card, and the table says that they did not: that is the mistake to be shown.
    assert "DIED, AND WAS CALLED FITTING" in done.stdout
    assert "of 2 batches that fitted: 2 «fits»" in done.stdout
    assert "batches that died and were called fitting: 100.0%" in done.stdout
    assert "time: " in done.stdout
    assert "not forecast: no_such_net" in done.stdout
    assert "not forecast: resnet34: 21.8 million parameters in this timm, 60.0 in the table" in done.stdout


def test_another_table_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path / "table.csv", "a,b\n1,2\n")
    assert done.returncode == 1
    assert "has no column model, layout" in done.stderr
