"""The parent's side: starts the training process, passes its lines and our signals on, and ends with it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import oomproof
from oomproof.frameworks.object_detection import require_api
from oomproof.run.supervisor.child import run_command
from oomproof.run.tf_object_detection.request import REQUEST, TrainingRequest


def run_in_process(request: TrainingRequest) -> int:
    """The exit code; 128 + N where signal N ended it."""
    require_api("oomproof run with a pipeline.config")
    with tempfile.TemporaryDirectory(prefix="oomproof-run-") as made:
        (Path(made) / REQUEST).write_text(json.dumps(request.as_json()))
        # -P: a file of the working folder must not stand for a module of the same name.
        command = [sys.executable, "-P", "-m", "oomproof.run.tf_object_detection.child", made]
        ours = str(Path(oomproof.__file__).parents[1])
        paths = [ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        code = run_command(
            command,
            {
                "TF_USE_LEGACY_KERAS": "1",
                "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
                "PYTHONPATH": os.pathsep.join(paths),
            },
        ).code
    return code if code >= 0 else 128 - code
