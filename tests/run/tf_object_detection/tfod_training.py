"""What tests of real trainings by `oomproof run pipeline.config` share: processes, and what they print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oomproof.frameworks.object_detection import INSTALL, missing_packages

needs_api = pytest.mark.skipif(
    bool(missing_packages()),
    reason=f"the Object Detection API is not installed (make tf-object-detection: {INSTALL})",
)
HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"
# One thread: sums come out in one order, and weights can be compared to the last bit.
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)]), "TF_CPP_MIN_LOG_LEVEL": "3",
    "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1",
}  # fmt: skip


def start(*arguments: object, **how: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "oomproof", "run", *map(str, arguments), "--log-every", "1", "-q"]
    given = {"env": ENVIRONMENT, **how}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **given)


def run(*arguments: object, code: int = 0, **how: Any) -> tuple[str, str]:
    process = start(*arguments, **how)
    out, err = process.communicate()
    assert process.returncode == code, (out[-2000:], err[-3000:])
    return out, err


def wait_for_line(process: subprocess.Popen[str], begin: str) -> list[str]:
    """Lines up to the first that begins so."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith(begin):
            break
    return seen


def ask(script: str, *arguments: object) -> Any:
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def losses_in(out: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+)/\d+  loss (\S+)", out, re.MULTILINE)}
