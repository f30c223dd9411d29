"""Training steps of the TensorFlow Object Detection API, foretold and for real.

They need the API, which `make tf-object-detection` installs and then runs these tests; where it is not there they are
skipped. Each step runs in a process of its own (tfod_real.py): the API needs Keras 2, and its models of
TensorFlow 1 another mode of TensorFlow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tfod_models import CENTER_NET, CONFIGS

from oomproof.frameworks.object_detection import INSTALL, missing_packages
from oomproof.memory.cards.devices import find_device
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob, open_config
from oomproof.trace.request import TraceRequest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(missing_packages()),
        reason=f"the Object Detection API is not installed (make tf-object-detection: {INSTALL})",
    ),
]
HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def job_of(name: str) -> ObjectDetectionJob:
    text = CENTER_NET if name == "center_net_tf2" else CONFIGS[name]
    return open_config(config_of_text(text, f"{name}.config"), f"{name}.config")


def for_real(name: str, folder: Path) -> dict[str, Any]:
    job = job_of(name)
    request = replace(job.step_request(resolve(job, {})), dialect="cpu")
    file = folder / "request.json"
    file.write_text(json.dumps(request.as_json()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
    command = [sys.executable, str(HERE / "tfod_real.py"), str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


READ_TWICE = """
from oomproof.frameworks.object_detection import import_api, parse_config
import_api(tensorflow_1=False)
config = parse_config("train_config { batch_size: 4 batch_size: 2 } train_config { num_steps: 3 }")
print(config.train_config.batch_size)
"""


def test_what_a_file_says_twice_is_read_as_by_the_apis_programs() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", READ_TWICE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1:] == ["2"], done.stderr[-2000:]


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_as_the_real_allocator_has_them(name: str, tmp_path: Path) -> None:
    found = for_real(name, tmp_path)
    assert found["replayed"] == pytest.approx(found["real"], rel=0.005), "lifetimes, in the order that was seen"
    assert found["expected"] == pytest.approx(found["real"], rel=0.03)
    assert found["low"] <= found["real"] <= found["high"]


def test_a_center_net_whose_order_differs_from_process_to_process_is_within_its_range(tmp_path: Path) -> None:
    found = for_real("center_net_tf2", tmp_path)
    assert found["replayed"] == pytest.approx(found["real"], rel=0.005), "lifetimes, in the order that was seen"
    assert found["low"] <= found["real"] <= found["high"]


def test_a_check_tells_the_stages_apart() -> None:
    said: list[str] = []
    job = job_of("mask_rcnn_tf2")
    timeline = job.trace(TraceRequest(resolve(job, {}), find_device("8GiB"), progress=said.append))
    assert "building the API's own model for TensorFlow 2" in said
    owners = {owner.split(".")[0] for owner in timeline.owners}
    assert {"feature extractor", "RPN", "box head", "mask head", "losses", "padded ground truth"} <= owners
    assert len(timeline.work) > 0, "plans and times need the work of operations"
    assert timeline.about.batchnorms >= 0
