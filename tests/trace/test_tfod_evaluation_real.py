"""Evaluation by the TensorFlow Object Detection API, foretold and for real: what `--validate` says. Needs the API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tfod_models import CONFIGS

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
SOURCE = HERE.parents[1] / "src"
READER = (
    'eval_config { } eval_input_reader { max_number_of_boxes: 30 tf_record_input_reader { input_path: "v" } MASKS }'
)


def for_real(name: str, stored: tuple[int, int], folder: Path) -> dict[str, Any]:
    reader = READER.replace("MASKS", "load_instance_masks: true" if "mask" in name else "")
    file = folder / "job.json"
    file.write_text(json.dumps({"text": CONFIGS[name] + reader, "stored": stored}))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
    command = [sys.executable, str(HERE / "tfod_evaluation_real.py"), str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "stored"),
    [("ssd_mobilenet_tf2", (480, 640)), ("mask_rcnn_tf2", (480, 640)), ("mask_rcnn_tf2", (900, 1200))],
)
def test_evaluation_as_the_real_allocator_has_it(name: str, stored: tuple[int, int], tmp_path: Path) -> None:
    found = for_real(name, stored, tmp_path)
    assert found["expected"] == pytest.approx(found["real"], rel=0.05)
    assert found["low"] <= found["real"] <= found["high"]
