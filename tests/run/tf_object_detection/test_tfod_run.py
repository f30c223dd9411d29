"""`oomproof run pipeline.config` for real: SSD MobileNet on a small set of records, on this CPU.

They need the API, which `make tf-object-detection` installs; where it is not there they are skipped.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tfod_records import write_config, write_records

from oomproof.frameworks.object_detection import INSTALL, missing_packages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(missing_packages()),
        reason=f"the Object Detection API is not installed (make tf-object-detection: {INSTALL})",
    ),
]
HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"
# One thread: sums come out in one order, and weights can be compared to the last bit.
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)]), "TF_CPP_MIN_LOG_LEVEL": "3",
    "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1",
}  # fmt: skip


def start(*arguments: object, **how: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "oomproof", "run", *map(str, arguments), "--log-every", "1", "-q"]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def run(*arguments: object, code: int = 0, **how: Any) -> tuple[str, str]:
    process = start(*arguments, **how)
    out, err = process.communicate()
    assert process.returncode == code, (out[-2000:], err[-3000:])
    return out, err


def ask(script: str, *arguments: object) -> Any:
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def losses_in(out: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+)/\d+  loss (\S+)", out, re.MULTILINE)}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_records(folder)
    return folder


def test_gradients_are_those_of_the_whole_batch(records: Path) -> None:
    found = ask("tfod_gradients.py", write_config(records, frozen="true", batch=8, dropout="false"))
    assert len(set(found["objects"])) > 1, "else a mean over micro-batches would do"
    assert found["mean of micro-batches"] > 0.01
    assert found["api"] < 1e-5
    assert found["in 4"]["gradients"] < 1e-4
    assert found["in 4"]["loss"] < 1e-6
    assert found["computed again"]["gradients"] < 1e-5
    assert found["float16"]["half"]
    assert not found["in 4"]["half"]
    assert found["float16"]["loss"] < 0.01


def test_killed_and_resumed_the_weights_are_those_of_an_undisturbed_run(records: Path, tmp_path: Path) -> None:
    """With augmentations, trained batch normalisation and micro-batches."""
    config = write_config(records, steps=6, batch=8)
    options = (config, "--accumulate", "2", "--save-every", "2")
    whole, _ = run(*options, "--model-dir", tmp_path / "whole")
    process = start(*options, "--model-dir", tmp_path / "cut")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 3/"):
            break
    # The process that trains, not the one that waits for it: nothing is saved, nothing is tidied up.
    for child in _children(process.pid):
        os.kill(child, signal.SIGKILL)
    process.communicate()
    assert process.returncode == 137
    again, _ = run(*options, "--model-dir", tmp_path / "cut")
    assert "step 2" in again.splitlines()[1] or "step 2" in again, again
    both = losses_in(whole), losses_in(again)
    assert both[1] == {step: both[0][step] for step in both[1]}
    assert min(both[1]) == 3
    found = ask("tfod_checkpoints.py", config, tmp_path / "whole", tmp_path / "cut", tmp_path / "exported")
    assert found["different"] == [], "of all variables of model and optimizer"
    assert found["compared"] > 300
    assert found["exported"], "by the API's own exporter"
    assert found["restored"] == 6, "by the API's own Checkpoint(step, model, optimizer)"


def _children(pid: int) -> list[int]:
    import psutil

    return [each.pid for each in psutil.Process(pid).children(recursive=True)]
