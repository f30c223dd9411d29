"""Every benchmark can be loaded and says how it is used; what they measure is not looked at here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path for path in (ROOT / "bench").glob("*.py") if "argparse" in path.read_text())


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_benchmark_starts(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", str(path), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr
