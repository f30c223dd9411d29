"""bench/accuracy.py on small tables of its own: what it prints, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

SCRIPT = Path(__file__).parents[2] / "bench" / "accuracy.py"

XMEM = """torchvision_ctor,num_classes,optimizer,batch_size,gpu,input,ground_bytes_nvml,real_oom,near_cap,\
xmem_estimate_bytes,dnnmem_estimate_bytes,schedtune_estimate_bytes
"MobileNetV3(custom small cfg,last_channel=1024)",10,SGD,4,RTX 3060,64x64x3,{truth},0,0,300000000,,
squeezenet1_1,10,Adam,4,RTX 4060,64x64x3,9000000000,0,1,,,
"""
TIMM = """timm_model,batch_size,max_gpu_memory_mib_nvidia_smi,likely_oom_censored
no_such_model,8,2000,0
resnet10t,2,2000,0
"""


def run(folder: Path, table: str) -> subprocess.CompletedProcess[str]:
    (folder / "table.csv").write_text(table)
    command = [sys.executable, str(SCRIPT), "table.csv", "--cache", "kept"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.thorough
@pytest.mark.slow
def test_rows_and_summary(tmp_path: Path) -> None:
    low = run(tmp_path, XMEM.format(truth=100 << 30))
    assert low.returncode == 0, low.stderr
    assert "mobilenet_v3_small SGD b4 RTX 3060" in low.stdout
    assert "UPPER FIGURE TOO LOW" in low.stdout
    assert "squeezenet" not in low.stdout, "a row bent by the end of its card has no figure to compare with"
    assert "upper figure too low on 100.0%" in low.stdout
    assert "xmem on the same rows" in low.stdout

    kept = list((tmp_path / "kept").iterdir())
    assert len(kept) == 1, "the traced step is kept"
    high = run(tmp_path, XMEM.format(truth=1 << 20))
    assert "upper figure too low on 0.0%" in high.stdout
    assert list((tmp_path / "kept").iterdir()) == kept


@pytest.mark.thorough
@pytest.mark.slow
def test_a_row_that_cannot_be_traced_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    ran = run(tmp_path, TIMM)
    assert ran.returncode == 0, ran.stderr
    assert "not forecast: no_such_model b8" in ran.stdout
    assert "resnet10t b2" in ran.stdout


def test_a_table_of_another_form_is_refused_in_one_line(tmp_path: Path) -> None:
    ran = run(tmp_path, "a,b\n1,2\n")
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "unknown form of table" in ran.stderr
