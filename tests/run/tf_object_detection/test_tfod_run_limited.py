"""A training that really dies for want of memory, and finishes with a plan. It needs the API, and Linux.

The kernel sets the limit (RLIMIT_DATA), for every process of the command: 1 GiB for the step beside TensorFlow, the API
and its graphs. The batch needs more than twice as much.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from tfod_records import write_config, write_records
from tfod_training import ENVIRONMENT, HERE, losses_in, needs_api, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    needs_api,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA is Linux's"),
]
STEP, GRAPHS = 1 << 30, 1 << 29
"""bytes; a training with two images, whose step is next to nothing, takes 0.56 GiB more than the API once loaded"""
RECORDS, IMAGES, SIDE, STEPS = 48, 96, 256, 10
ALIKE = "unpad_groundtruth_tensors: false"  # batches are of one size whatever is in them, and a plan needs few traces
IDLE = """
from oomproof.frameworks.object_detection import import_api, part
tf = import_api(tensorflow_1=False)
part("model_lib_v2")
tf.matmul(tf.zeros((8, 8)), tf.zeros((8, 8)))
print(next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData")))
"""
# Memory that is freed goes back to the system at once, as to a GPU's allocator, whose limit this one stands for. oneDNN
# has a pool of its own, which ends the process with SIGSEGV, without a word, where there is no more.
TIDY = {**ENVIRONMENT, "MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_ARENA_MAX": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_records(folder, images=RECORDS, side=SIDE)
    return write_config(folder, side=SIDE, batch=IMAGES, steps=STEPS, rate=0.02, more=ALIKE)


@pytest.fixture(scope="module")
def limited() -> dict[str, Any]:
    """How processes are started under the limit."""
    import resource

    done = subprocess.run([sys.executable, "-c", IDLE], env=TIDY, capture_output=True, text=True, check=True)
    limit = int(done.stdout.split()[-1]) + GRAPHS + STEP
    return {"env": TIDY, "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))}


def test_the_api_dies_of_its_config(config: Path, limited: dict[str, Any]) -> None:
    command = [sys.executable, str(HERE / "tfod_api_training.py"), str(config), "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **limited)
    assert done.returncode != 0
    assert "step 1/" not in done.stdout
    # The last is protobuf's, with which TensorFlow puts its message together: seen alone, with nothing behind it.
    reasons = ("died of ResourceExhaustedError", "died of MemoryError", "Arena alloc failed")
    assert any(reason in done.stderr for reason in reasons), done.stderr[-2000:]


def test_a_plan_trains_it_until_the_loss_falls(config: Path, limited: dict[str, Any], tmp_path: Path) -> None:
    out, errors = run(config, "--model-dir", tmp_path / "out", "--on", "1GiB", **limited)
    assert errors == ""
    assert "too much for 1GiB" in out
    assert "ran out of memory" not in out, "the plan alone made it fit"
    losses = list(losses_in(out).values())
    assert len(losses) == STEPS
    assert mean(losses[-3:]) < 0.7 * mean(losses[:3]), losses
